package tables

import (
	"maps"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// Outbox is what is still to be proposed. The proposer had no room for it, its command was not or perhaps not
// committed, or it became due where nothing may be proposed. Each tick proposes some of it; failures return.
// It holds names, not commands: a command's contents, such as the next holders, are chosen when it is made.
type Outbox struct {
	Ends      map[api.SessionID]raftfsm.End // sessions to end
	Evictions []*raftfsm.Evict              // of holders that have let go of a revoked lock; without successions
	Locks     map[api.Name]bool             // to offer to the heads of their queues
	Requests  map[*Waiter]bool              // that the log can answer without a free lock
}

func newOutbox() *Outbox {
	return &Outbox{Ends: map[api.SessionID]raftfsm.End{}, Locks: map[api.Name]bool{}, Requests: map[*Waiter]bool{}}
}

// Bounds of what one tick proposes.
const (
	MaxExpiries  = 256 // sessions: all in one entry, which delays all other commands
	maxEvictions = 256
	maxOffers    = 1024
	maxRequests  = 256
)

// PutEnd keeps the end of a session. An end that the client has acknowledged wins: it causes no lock-delay.
func (o *Outbox) PutEnd(end raftfsm.End) {
	if was, known := o.Ends[end.Session]; !known || was.Failed() {
		o.Ends[end.Session] = end
	}
}

// PutEviction keeps an eviction, without its successions.
func (o *Outbox) PutEviction(c raftfsm.Evict) {
	c.Successions = nil
	o.Evictions = append(o.Evictions, &c)
}

// PutLock keeps a lock that is to be offered.
func (o *Outbox) PutLock(name api.Name) { o.Locks[name] = true }

// PutRequest keeps a request about which the log is to be asked.
func (o *Outbox) PutRequest(w *Waiter) { o.Requests[w] = true }

// TakeEnds returns some of the sessions to end. Each take reports whether there is more.
func (o *Outbox) TakeEnds() (ends []raftfsm.End, more bool) {
	for id, end := range o.Ends {
		if len(ends) == MaxExpiries {
			return ends, true
		}
		ends = append(ends, end)
		delete(o.Ends, id)
	}
	return ends, false
}

// TakeEvictions returns some evictions.
func (o *Outbox) TakeEvictions() (evictions []*raftfsm.Evict, more bool) {
	n := min(len(o.Evictions), maxEvictions)
	evictions, o.Evictions = o.Evictions[:n:n], slices.Clone(o.Evictions[n:])
	return evictions, len(o.Evictions) > 0
}

// TakeLocks returns some locks to offer.
func (o *Outbox) TakeLocks() (names []api.Name, more bool) { return takeKeys(o.Locks, maxOffers) }

// TakeRequests returns some requests.
func (o *Outbox) TakeRequests() (requests []*Waiter, more bool) {
	return takeKeys(o.Requests, maxRequests)
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
