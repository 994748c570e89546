package master

import (
	"bytes"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/misuse"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// These are counted beside each kind of misuse.
const (
	countOpens  = misuse.SameContents + 1 + iota // of nodes
	countHolds                                   // of exclusive locks
	countDrops                                   // of copies, for a change
	countCloses                                  // of handles
	usageCounts                                  // how many counts there are
)

// totalOf returns what a kind of misuse is a part of, or 0.
func totalOf(kind misuse.Kind) misuse.Kind {
	switch kind {
	case misuse.BriefHolds, misuse.Unfenced:
		return countHolds
	case misuse.UnusedCache:
		return countDrops
	}
	return 0
}

// usage counts the recent actions of a session, or of a principal's sessions, in this window and the last. It
// has a fixed size; its methods do not allocate or read a clock. A nil usage counts nothing. epoch.mu guards
// it.
type usage struct {
	all    *usages
	since  session.Instant // when it began
	begun  bool            // the session was created in this epoch
	window uint32          // of now
	now    [usageCounts]uint32
	before [usageCounts]uint32
	at     [usageCounts]api.Name // last node of each
	recent [4]openedNode         // last opened
	next   uint8                 // index in recent
}

// openedNode is a node as it was when opened.
type openedNode struct {
	ref   namespace.Ref
	stamp uint64 // grows with each change
}

// stampOf grows with each change of a node or its lock: generations only grow, from one counter.
func stampOf(n *namespace.Node) uint64 {
	return uint64(n.Content) + uint64(n.Lock) + uint64(n.ACLs)
}

// count counts an action at a node, or at "" for none. epoch.mu is held.
func (u *usage) count(what misuse.Kind, name api.Name) {
	if u == nil {
		return
	}
	u.turn()
	u.now[what]++
	u.at[what] = name
}

// turn moves to the current window, and keeps only the one before.
func (u *usage) turn() {
	if u.window == u.all.window {
		return
	}
	if u.before = u.now; u.window+1 != u.all.window {
		u.before = [usageCounts]uint32{}
	}
	u.now, u.window = [usageCounts]uint32{}, u.all.window
}

func (u *usage) sum(what misuse.Kind) int { return int(u.now[what]) + int(u.before[what]) }

// opened counts a reopening if the node is one of the last opened and has not changed.
func (u *usage) opened(n *namespace.Node) {
	if u == nil {
		return
	}
	now := openedNode{ref: n.Ref(), stamp: stampOf(n)}
	for i := range u.recent {
		one := &u.recent[i]
		if one.ref == now.ref {
			if one.stamp == now.stamp && n.Kind == api.File { // a directory node does not show its changes
				u.count(misuse.Reopening, n.Name)
			}
			*one = now
			return
		}
	}
	u.recent[u.next] = now
	u.next = (u.next + 1) % uint8(len(u.recent))
}

// held counts an ended turn with an exclusive lock. unfenced says that nothing showed its loss to others.
func (u *usage) held(name api.Name, took time.Duration, unfenced bool) {
	u.count(countHolds, name)
	if took < misuse.BriefHold {
		u.count(misuse.BriefHolds, name)
	}
	if unfenced {
		u.count(misuse.Unfenced, name)
	}
}

// wrote counts a large or needless write. was is the node before it, or nil.
func (u *usage) wrote(name api.Name, was *namespace.Node, contents []byte) {
	switch {
	case len(contents) >= misuse.LargeWrite:
		u.count(misuse.LargeWrites, name)
	case was != nil && was.Kind == api.File && bytes.Equal(was.Contents, contents):
		u.count(misuse.SameContents, name)
	}
}

// dropped counts a copy that a change made the client drop, and whether it may have used it.
func (u *usage) dropped(name api.Name, used bool) {
	u.count(countDrops, "")
	if !used {
		u.count(misuse.UnusedCache, name)
	}
}

// usages is what is counted in an epoch. It keeps the usage of ended sessions for the last principals.
// epoch.mu guards it, except unread.
type usages struct {
	began       session.Instant // of the epoch
	window      uint32          // windows that have ended
	ofSession   map[api.SessionID]*usage
	ofPrincipal *simplelru.LRU[string, *usage]
	unread      unreadSequencers
}

// maxUsagePrincipals bounds the principals in usages.
const maxUsagePrincipals = 1024

func newUsages() *usages {
	list, err := simplelru.NewLRU[string, *usage](maxUsagePrincipals, nil)
	if err != nil {
		panic(err) // a size below 1
	}
	return &usages{ofSession: map[api.SessionID]*usage{}, ofPrincipal: list}
}

// begin returns the usage of a session that was created now, or inherited.
func (all *usages) begin(now session.Instant, created bool) *usage {
	return &usage{all: all, since: now, begun: created, window: all.window}
}

// advance sets the current window.
func (all *usages) advance(now session.Instant) {
	all.window = uint32(max(now.Sub(all.began), 0) / misuse.Window)
}

// measured returns the time over which a usage has counted.
func (all *usages) measured(u *usage, now session.Instant) time.Duration {
	first := all.began
	if all.window > 0 {
		first = all.began.Add(time.Duration(all.window-1) * misuse.Window)
	}
	return now.Sub(max(u.since, first))
}

// sessionEnded counts a short session for its principal. u is the session's usage.
func (all *usages) sessionEnded(principal string, u *usage, why api.EndReason, now session.Instant) {
	if u == nil || !u.begun {
		return
	}
	var what misuse.Kind
	switch age := now.Sub(u.since); {
	case why == api.ByClose && age < misuse.BriefSession:
		what = misuse.BriefSessions
	case why == api.ByExpiry && age < misuse.AbandonedUntil:
		what = misuse.Abandoned
	default:
		return
	}
	of, ok := all.ofPrincipal.Get(principal)
	if !ok {
		of = all.begin(u.since, true)
		all.ofPrincipal.Add(principal, of)
	}
	of.count(what, "")
}

// unreadSequencers remembers generations of locks whose holders said at the release that the sequencer was
// never read. Generations in one place overwrite each other: one may be forgotten, but never mistaken. It
// needs no mutex.
type unreadSequencers [1024]atomic.Uint64

// note records what a holder says at the release; the last statement counts.
func (u *unreadSequencers) note(g api.Generation, unread bool) {
	place := &u[uint64(g)%uint64(len(u))]
	if unread {
		place.Store(uint64(g))
	} else {
		place.CompareAndSwap(uint64(g), 0)
	}
}

// has reports whether a holder has said so.
func (u *unreadSequencers) has(g api.Generation) bool {
	return u[uint64(g)%uint64(len(u))].Load() == uint64(g)
}
