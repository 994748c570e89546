package master

import (
	"maps"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// outbox is what has to be proposed and is not on its way: the proposer had no room for
// it, or what was proposed was not, or perhaps not, committed, or it became due where
// nothing may be proposed. Each tick of the clock proposes some of everything that is in
// it, and what fails again comes back. It names things, not commands: what the command
// says, who is to have a lock next for example, is decided when it is made.
//
// Two things are due again elsewhere: a lock-delay whose end was not committed runs out
// once more, at once (delays), and the remover keeps the nodes that it has to remove.
//
// epoch.mu guards it. Each list is bounded by what it names: the sessions, the
// revocations, the locks and the requests of the queues.
type outbox struct {
	ends      map[api.SessionID]raftfsm.End // sessions that are to be ended
	evictions []*raftfsm.Evict              // holders that have let go of a revoked lock; without successions
	locks     map[api.Name]bool             // to be offered to those at the head of their queue
	requests  map[*waiter]bool              // that can be answered although no lock is free for them
}

func newOutbox() *outbox {
	return &outbox{ends: map[api.SessionID]raftfsm.End{}, locks: map[api.Name]bool{}, requests: map[*waiter]bool{}}
}

// The most of each that one tick proposes.
const (
	maxExpiries  = 256 // sessions: all in one entry, which holds up everybody else's commands
	maxEvictions = 256
	maxOffers    = 1024
	maxRequests  = 256
)

// putEnd keeps the end of a session. That its client has acknowledged the end stands,
// whatever else would end it: then nothing is delayed.
func (o *outbox) putEnd(end raftfsm.End) {
	if was, known := o.ends[end.Session]; !known || was.Failed() {
		o.ends[end.Session] = end
	}
}

// putEviction keeps an eviction.
func (o *outbox) putEviction(c raftfsm.Evict) {
	c.Successions = nil
	o.evictions = append(o.evictions, &c)
}

// putLock keeps a lock that is to be offered.
func (o *outbox) putLock(name api.Name) { o.locks[name] = true }

// putRequest keeps a request that the log is to be asked about.
func (o *outbox) putRequest(w *waiter) { o.requests[w] = true }

// takeEnds returns some of the sessions that are to be ended. Each take reports whether
// there is more.
func (o *outbox) takeEnds() (ends []raftfsm.End, more bool) {
	for id, end := range o.ends {
		if len(ends) == maxExpiries {
			return ends, true
		}
		ends = append(ends, end)
		delete(o.ends, id)
	}
	return ends, false
}

func (o *outbox) takeEvictions() (evictions []*raftfsm.Evict, more bool) {
	n := min(len(o.evictions), maxEvictions)
	evictions, o.evictions = o.evictions[:n:n], slices.Clone(o.evictions[n:])
	return evictions, len(o.evictions) > 0
}

func (o *outbox) takeLocks() (names []api.Name, more bool) { return takeKeys(o.locks, maxOffers) }

func (o *outbox) takeRequests() (requests []*waiter, more bool) {
	return takeKeys(o.requests, maxRequests)
}

// takeKeys takes some of the keys out of a set.
func takeKeys[K comparable](set map[K]bool, most int) (keys []K, more bool) {
	for key := range maps.Keys(set) {
		if len(keys) == most {
			return keys, true
		}
		keys = append(keys, key)
		delete(set, key)
	}
	return keys, false
}
