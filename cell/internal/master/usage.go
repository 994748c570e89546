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
// has a fixed size, most of it from the first action on: most of very many sessions do nothing. Its methods do not
// read a clock. A nil usage counts nothing. epoch.mu guards it.
type usage struct {
	all   *usages
	since session.Instant // when it began
	begun bool            // the session was created in this epoch

	*actions // nil before the first
}

// actions are those that a usage has counted.
type actions struct {
	window uint32 // the window in which now counts
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
	if u.actions == nil {
		u.actions = &actions{window: u.all.window}
	}
	if u.window == u.all.window {
		return
	}
	if u.before = u.now; u.window+1 != u.all.window {
		u.before = [usageCounts]uint32{}
	}
	u.now, u.window = [usageCounts]uint32{}, u.all.window
}

func (u *usage) sum(what misuse.Kind) int {
	if u.actions == nil {
		return 0
	}
	return int(u.now[what]) + int(u.before[what])
}

// opened counts a reopening if the node is one of the last opened and has not changed.
func (u *usage) opened(n *namespace.Node) {
	if u == nil {
		return
	}
	u.turn()
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
	return &usage{all: all, since: now, begun: created}
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

// maxHoldTimes bounds the locks in holdTimes.
const maxHoldTimes = 4096

// holdTimes measures recent turns with locks, to estimate waits for people. A turn begins when a free lock is
// granted, or is handed over, and ends when it has no holder; readers together take one turn. It covers the
// locks granted last in this epoch. epoch.mu guards it.
type holdTimes struct {
	byName *simplelru.LRU[api.Name, holdTime]
	over   func(name api.Name, took time.Duration) // counts each ended turn with one of these locks
}

// holdTime is what is known of a lock. All but usual is of the current turn.
type holdTime struct {
	generation api.Generation // 0 between turns
	cached     bool           // a holder may keep the lock unused, so the turn's length means nothing
	delays     bool           // a lock-delay follows if the holder fails, so no other check of the sequencer is needed
	began      session.Instant
	usual      time.Duration // mean of turns, in which the latest counts for a quarter; 0 if none has ended
}

func newHoldTimes(over func(api.Name, time.Duration)) *holdTimes {
	byName, err := simplelru.NewLRU[api.Name, holdTime](maxHoldTimes, nil)
	if err != nil {
		panic(err) // a size below 1
	}
	return &holdTimes{byName: byName, over: over}
}

// beginHold records a grant. One of the same generation belongs to the current turn.
func (t *holdTimes) beginHold(name api.Name, next holdTime, now session.Instant) {
	one, _ := t.byName.Get(name)
	if one.generation == next.generation {
		if next.cached && !one.cached {
			one.cached = true
			t.byName.Add(name, one)
		}
		return
	}
	next.began, next.usual = now, t.ended(name, one, now).usual
	t.byName.Add(name, next)
}

// current returns the turn of a grant, if it has not ended.
func (t *holdTimes) current(name api.Name, g api.Generation) (one holdTime, known bool) {
	one, _ = t.byName.Peek(name)
	return one, g != 0 && one.generation == g
}

// endHold records that the lock has no holder.
func (t *holdTimes) endHold(name api.Name, now session.Instant) {
	if one, ok := t.byName.Get(name); ok {
		t.byName.Add(name, t.ended(name, one, now))
	}
}

// ended returns a record after the end of its turn, if it had one.
func (t *holdTimes) ended(name api.Name, one holdTime, now session.Instant) holdTime {
	if one.generation == 0 || one.cached {
		return holdTime{usual: one.usual}
	}
	took := max(now.Sub(one.began), 1)
	t.over(name, took)
	if one.usual == 0 {
		one.usual = took
	}
	return holdTime{usual: one.usual + (took-one.usual)/4}
}

// estimateWait estimates when the current turn, if held, and ahead more will have ended. It returns 0 if it
// cannot: no turn has ended yet, the current one takes longer than usual, or a holder caches the lock.
func (t *holdTimes) estimateWait(name api.Name, held bool, ahead int, now session.Instant) time.Duration {
	one, _ := t.byName.Peek(name)
	if one.usual == 0 || held && (one.generation == 0 || one.cached) {
		return 0
	}
	wait := time.Duration(ahead) * one.usual
	if held {
		left := one.usual - now.Sub(one.began)
		if left <= 0 {
			return 0
		}
		wait += left
	}
	return wait
}
