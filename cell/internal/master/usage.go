package master

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/misuse"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// action is something that a session does and that is counted. Those up to lastAtNode are done at a node.
type action uint8

const (
	noAction             action = iota // nothing that is counted
	actionLookAgain                    // at a node that had not changed
	actionTryAgain                     // to take a lock without waiting, though nothing had changed
	actionReopen                       // a file that had not changed
	actionHoldBriefly                  // an exclusive lock
	actionHoldUnfenced                 // an exclusive lock, without reading its sequencer
	actionDropUnused                   // a copy that a change had it drop
	actionWriteLarge                   // contents
	actionWriteSame                    // contents
	actionOpen                         // a node
	actionHold                         // an exclusive lock
	actionDrop                         // a copy
	actionClose                        // a handle
	actionBriefSession                 // of a principal
	actionAbandonSession               // of a principal
	actions                            // how many there are

	lastAtNode = actionOpen
)

// usage counts the recent actions of one session, or of the sessions of one principal: those in this window and in
// the one before. It has a fixed size; its methods allocate nothing and read no clock. A nil usage counts nothing.
// epoch.mu guards it.
type usage struct {
	all    *usages
	since  session.Instant // when it was begun
	begun  bool            // the session was created in this epoch
	window uint32          // of now
	now    [actions]uint32
	before [actions]uint32
	at     [lastAtNode + 1]api.Name // where each was done last
	recent [4]openedNode            // that it has opened last
	next   uint8                    // place in recent

	nowThere, beforeThere [lastAtNode + 1]uint32 // those of now and before that were done at the node at[d], since the last one at another node
}

// openedNode is a node as it was when a session opened it.
type openedNode struct {
	ref   namespace.Ref
	stamp uint64 // greater after each change
}

// stampOf grows with each change of a node, or of the lock on it: generations only grow, and are drawn from one counter.
func stampOf(n *namespace.Node) uint64 {
	return uint64(n.Content) + uint64(n.Lock) + uint64(n.ACLs)
}

// count counts an action at a node; "" if it was at none. epoch.mu is held.
func (u *usage) count(d action, name api.Name) {
	if u == nil || d == noAction {
		return
	}
	u.turn()
	u.now[d]++
	if d <= lastAtNode {
		if u.at[d] != name {
			u.at[d], u.nowThere[d], u.beforeThere[d] = name, 0, 0
		}
		u.nowThere[d]++
	}
}

// turn goes on to the current window, and forgets all but the one before it.
func (u *usage) turn() {
	if u.window == u.all.window {
		return
	}
	if u.before, u.beforeThere = u.now, u.nowThere; u.window+1 != u.all.window {
		u.before, u.beforeThere = [actions]uint32{}, [lastAtNode + 1]uint32{}
	}
	u.now, u.nowThere, u.window = [actions]uint32{}, [lastAtNode + 1]uint32{}, u.all.window
}

// sum is how often an action was done.
func (u *usage) sum(d action) int { return int(u.now[d]) + int(u.before[d]) }

// sumThere is how often an action was done at the node where it was done last, since it was done at another one.
func (u *usage) sumThere(d action) int { return int(u.nowThere[d]) + int(u.beforeThere[d]) }

// opened counts that a node was opened, and that it was opened again if it is one of the last ones and has not changed.
func (u *usage) opened(n *namespace.Node) {
	if u == nil {
		return
	}
	now := openedNode{ref: n.Ref(), stamp: stampOf(n)}
	for i := range u.recent {
		one := &u.recent[i]
		if one.ref == now.ref {
			if one.stamp == now.stamp && n.Kind == api.File { // whether a directory has changed is not in the node
				u.count(actionReopen, n.Name)
			}
			*one = now
			return
		}
	}
	u.recent[u.next] = now
	u.next = (u.next + 1) % uint8(len(u.recent))
}

// held counts a turn with an exclusive lock that has ended.
func (u *usage) held(name api.Name, took time.Duration, unfenced bool) {
	u.count(actionHold, name)
	if took < misuse.BriefHold {
		u.count(actionHoldBriefly, name)
	}
	if unfenced {
		u.count(actionHoldUnfenced, name)
	}
}

// dropped counts a copy that a change has the client drop, which it may have used.
func (u *usage) dropped(name api.Name, used bool) {
	u.count(actionDrop, "")
	if !used {
		u.count(actionDropUnused, name)
	}
}

// usages is what is counted in an epoch. It keeps the usage of sessions that have ended by principal, for the principals
// whose sessions have ended last. epoch.mu guards it, except unread.
type usages struct {
	began       session.Instant // of the epoch
	window      uint32          // how many windows are over
	ofPrincipal *simplelru.LRU[string, *usage]
	unread      unreadSequencers
}

// maxUsagePrincipals is of how many principals usages keeps something.
const maxUsagePrincipals = 1024

func newUsages() *usages {
	list, err := simplelru.NewLRU[string, *usage](maxUsagePrincipals, nil)
	if err != nil {
		panic(err) // a size below 1
	}
	return &usages{ofPrincipal: list}
}

// begin begins to count the actions of a session that was created now, or that the epoch has inherited.
func (all *usages) begin(now session.Instant, created bool) *usage {
	return &usage{all: all, since: now, begun: created, window: all.window}
}

// advance notes what time it is.
func (all *usages) advance(now session.Instant) {
	all.window = uint32(max(now.Sub(all.began), 0) / misuse.Window)
}

// measured is how long the time is over which a usage has counted.
func (all *usages) measured(u *usage, now session.Instant) time.Duration {
	first := all.began
	if all.window > 0 {
		first = all.began.Add(time.Duration(all.window-1) * misuse.Window)
	}
	return now.Sub(max(u.since, first))
}

// sessionEnded counts, for its principal, a session that did not live long. u is the session's own usage.
func (all *usages) sessionEnded(principal string, u *usage, why api.EndReason, now session.Instant) {
	if u == nil || !u.begun {
		return
	}
	var what action
	switch age := now.Sub(u.since); {
	case why == api.ByClose && age < misuse.BriefSession:
		what = actionBriefSession
	case why == api.ByExpiry && age < misuse.AbandonedUntil:
		what = actionAbandonSession
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

// unreadSequencers remembers the generations of locks whose holders said, when they released the lock, that nobody has read the
// sequencer. Generations that share a place overwrite each other: one may be forgotten, but none is taken for another. It needs no mutex.
type unreadSequencers [1024]atomic.Uint64

// note notes what a holder says when it releases its lock. If it says so several times, the last one counts.
func (u *unreadSequencers) note(g api.Generation, unread bool) {
	place := &u[uint64(g)%uint64(len(u))]
	if unread {
		place.Store(uint64(g))
	} else {
		place.CompareAndSwap(uint64(g), 0)
	}
}

// has reports whether a client has said so.
func (u *unreadSequencers) has(g api.Generation) bool {
	return u[uint64(g)%uint64(len(u))].Load() == uint64(g)
}
