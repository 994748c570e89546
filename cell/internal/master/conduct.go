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

// deed is something that sessions do, which is counted. Those up to lastAtNode are done at a node.
type deed uint8

const (
	noDeed             deed = iota // nothing that is counted
	deedLookAgain                  // at a node that had not changed
	deedTryAgain                   // to take a lock without waiting, though nothing had changed
	deedReopen                     // a file that had not changed
	deedHoldBriefly                // an exclusive lock
	deedHoldUnfenced               // an exclusive lock, without reading its sequencer
	deedDropUnused                 // a copy that a change had it drop
	deedWriteLarge                 // contents
	deedWriteSame                  // contents
	deedOpen                       // a node
	deedHold                       // an exclusive lock
	deedDrop                       // a copy
	deedClose                      // a handle
	deedBriefSession               // of a principal
	deedAbandonSession             // of a principal
	deeds                          // how many there are

	lastAtNode = deedOpen
)

// conduct counts what one session does, or the sessions of one principal, of late: in this window and the one
// before. It is of a fixed size, and its methods allocate nothing and read no clock. A nil one counts nothing.
// epoch.mu guards it.
type conduct struct {
	all    *conducts
	since  session.Instant // when it was begun
	begun  bool            // the session was created in this epoch
	window uint32          // of now
	now    [deeds]uint32
	before [deeds]uint32
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

// count counts a deed at a node; "" if it was at none. epoch.mu is held.
func (c *conduct) count(d deed, name api.Name) {
	if c == nil || d == noDeed {
		return
	}
	c.turn()
	c.now[d]++
	if d <= lastAtNode {
		if c.at[d] != name {
			c.at[d], c.nowThere[d], c.beforeThere[d] = name, 0, 0
		}
		c.nowThere[d]++
	}
}

// turn goes on to the window that it is, and forgets those before the last.
func (c *conduct) turn() {
	if c.window == c.all.window {
		return
	}
	if c.before, c.beforeThere = c.now, c.nowThere; c.window+1 != c.all.window {
		c.before, c.beforeThere = [deeds]uint32{}, [lastAtNode + 1]uint32{}
	}
	c.now, c.nowThere, c.window = [deeds]uint32{}, [lastAtNode + 1]uint32{}, c.all.window
}

// sum is how often a deed was done.
func (c *conduct) sum(d deed) int { return int(c.now[d]) + int(c.before[d]) }

// sumThere is how often a deed was done where it was done last, since it was done elsewhere.
func (c *conduct) sumThere(d deed) int { return int(c.nowThere[d]) + int(c.beforeThere[d]) }

// opened counts that a node was opened, again if it is the same as lately.
func (c *conduct) opened(n *namespace.Node) {
	if c == nil {
		return
	}
	now := openedNode{ref: n.Ref(), stamp: stampOf(n)}
	for i := range c.recent {
		one := &c.recent[i]
		if one.ref == now.ref {
			if one.stamp == now.stamp && n.Kind == api.File { // whether a directory has changed is not in the node
				c.count(deedReopen, n.Name)
			}
			*one = now
			return
		}
	}
	c.recent[c.next] = now
	c.next = (c.next + 1) % uint8(len(c.recent))
}

// held counts a turn with an exclusive lock that has ended.
func (c *conduct) held(name api.Name, took time.Duration, unfenced bool) {
	c.count(deedHold, name)
	if took < misuse.BriefHold {
		c.count(deedHoldBriefly, name)
	}
	if unfenced {
		c.count(deedHoldUnfenced, name)
	}
}

// dropped counts a copy that a change has the client drop, which it may have used.
func (c *conduct) dropped(name api.Name, used bool) {
	c.count(deedDrop, "")
	if !used {
		c.count(deedDropUnused, name)
	}
}

// conducts counts what the sessions of an epoch do, and keeps the count of the sessions that have ended by principal, of those
// principals for which one has ended last. epoch.mu guards it, but for unread.
type conducts struct {
	began       session.Instant // of the epoch
	window      uint32          // how many windows are over
	ofPrincipal *simplelru.LRU[string, *conduct]
	unread      unreadSequencers
}

// maxConductPrincipals bounds the principals of which conducts knows something.
const maxConductPrincipals = 1024

func newConducts() *conducts {
	list, err := simplelru.NewLRU[string, *conduct](maxConductPrincipals, nil)
	if err != nil {
		panic(err) // a size below 1
	}
	return &conducts{ofPrincipal: list}
}

// begin begins to count what a session does that was created now, or that the epoch has inherited.
func (all *conducts) begin(now session.Instant, created bool) *conduct {
	return &conduct{all: all, since: now, begun: created, window: all.window}
}

// advance notes what time it is.
func (all *conducts) advance(now session.Instant) {
	all.window = uint32(max(now.Sub(all.began), 0) / misuse.Window)
}

// measured is for how long what a conduct has counted was counted.
func (all *conducts) measured(c *conduct, now session.Instant) time.Duration {
	first := all.began
	if all.window > 0 {
		first = all.began.Add(time.Duration(all.window-1) * misuse.Window)
	}
	return now.Sub(max(c.since, first))
}

// sessionEnded counts, for its principal, a session that did not live long. The c is its conduct.
func (all *conducts) sessionEnded(principal string, c *conduct, why api.EndReason, now session.Instant) {
	if c == nil || !c.begun {
		return
	}
	var what deed
	switch age := now.Sub(c.since); {
	case why == api.ByClose && age < misuse.BriefSession:
		what = deedBriefSession
	case why == api.ByExpiry && age < misuse.AbandonedUntil:
		what = deedAbandonSession
	default:
		return
	}
	of, ok := all.ofPrincipal.Get(principal)
	if !ok {
		of = all.begin(c.since, true)
		all.ofPrincipal.Add(principal, of)
	}
	of.count(what, "")
}

// unreadSequencers remembers of which generations of locks the client has said, when it released the lock, that nobody has read the
// sequencer. It knows the last of those that share a place, so it may forget one, and takes none for another. It needs no mutex.
type unreadSequencers [1024]atomic.Uint64

// note notes what the holder that releases a lock says, for the last time if it says so again.
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
