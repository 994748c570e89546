package master

import (
	"maps"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// outbox is what is still to be proposed. The proposer had no room for it, its command was not or perhaps not
// committed, or it became due where nothing may be proposed. Each tick proposes some of it; failures return.
// It holds names, not commands: a command's contents, such as the next holders, are chosen when it is made.
type outbox struct {
	ends      map[api.SessionID]raftfsm.End // sessions to end
	evictions []*raftfsm.Evict              // of holders that have let go of a revoked lock; without successions
	locks     map[api.Name]bool             // to offer to the heads of their queues
	requests  map[*waiter]bool              // that the log can answer without a free lock
}

func newOutbox() *outbox {
	return &outbox{ends: map[api.SessionID]raftfsm.End{}, locks: map[api.Name]bool{}, requests: map[*waiter]bool{}}
}

// Bounds of what one tick proposes.
const (
	maxExpiries  = 256 // sessions: all in one entry, which delays all other commands
	maxEvictions = 256
	maxOffers    = 1024
	maxRequests  = 256
)

// putEnd keeps the end of a session. An end that the client has acknowledged wins: it causes no lock-delay.
func (o *outbox) putEnd(end raftfsm.End) {
	if was, known := o.ends[end.Session]; !known || was.Failed() {
		o.ends[end.Session] = end
	}
}

func (o *outbox) putEviction(c raftfsm.Evict) {
	c.Successions = nil
	o.evictions = append(o.evictions, &c)
}

func (o *outbox) putLock(name api.Name) { o.locks[name] = true }

func (o *outbox) putRequest(w *waiter) { o.requests[w] = true }

// takeEnds returns some of the sessions to end. Each take reports whether there is more.
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

// takeKeys takes some keys out of a set.
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
