package cell

import (
	pb "github.com/chubbylock/chubby/api/chubbypb"

	"github.com/chubbylock/chubby/api"
)

// mailbox is what one session has yet to be told, and its parked KeepAlive
// (Chubby §2.8). Events are numbered from 1 in each epoch and stay until the
// client has acknowledged them; when too many are waiting, those that come
// later are replaced by one event that says so. master.mu guards it.
type mailbox struct {
	events []*pb.Event // not acknowledged, ascending by sequence
	last   uint64      // sequence of the newest event
	told   uint64      // sequence of the newest event that a reply has carried
	acked  uint64
	grant  uint64 // number of the newest grant made to the session
	parked *parked
}

// parked is a KeepAlive that waits. Its wake is closed when there is something
// to tell; over says that a newer KeepAlive has taken its place.
type parked struct {
	wake chan struct{}
	over bool
}

// post queues an event, wakes the parked KeepAlive, and returns the event's
// number, or that of the event that says it was lost. What takes something from
// the client is never lost.
func (b *mailbox) post(e *pb.Event) uint64 {
	if n := len(b.events); n >= api.MaxEventQueue && !essential(e.GetKind()) {
		if b.events[n-1].Kind == pb.EventKind_EVENT_KIND_LOST {
			return b.last
		}
		e = &pb.Event{Kind: pb.EventKind_EVENT_KIND_LOST, Explanation: "events were dropped because too many waited; look again"}
	}
	b.last++
	e.Sequence = b.last
	b.events = append(b.events, e)
	b.rouse()
	return b.last
}

// essential reports whether the master waits for an event of this kind to be
// acknowledged. There are as many of these at most as the session has handles and
// names in its cache.
func essential(kind pb.EventKind) bool {
	switch kind {
	case pb.EventKind_EVENT_KIND_LOCK_LOST, pb.EventKind_EVENT_KIND_SESSION_ENDED, pb.EventKind_EVENT_KIND_CACHE_INVALIDATION:
		return true
	}
	return false
}

// acknowledge drops the events up to that sequence.
func (b *mailbox) acknowledge(sequence uint64) {
	if sequence > b.told {
		return // what was never told cannot have been heard: a reply of another epoch is meant
	}
	for len(b.events) > 0 && b.events[0].Sequence <= sequence {
		b.events = b.events[1:]
	}
	b.acked = max(b.acked, sequence)
}

// heard reports whether everything told was acknowledged. Until then a
// KeepAlive extends nothing (decision 6).
func (b *mailbox) heard() bool { return b.acked == b.told }

// tell returns what is to be delivered now.
func (b *mailbox) tell() []*pb.Event {
	b.told = b.last
	return b.events
}

// park takes the place of the KeepAlive that was parked before.
func (b *mailbox) park() *parked {
	if b.parked != nil {
		b.parked.over = true
		b.rouse()
	}
	b.parked = &parked{wake: make(chan struct{})}
	return b.parked
}

// rouse answers the parked KeepAlive now.
func (b *mailbox) rouse() {
	if b.parked != nil {
		close(b.parked.wake)
		b.parked = nil
	}
}

// unpark forgets a parked KeepAlive that woke by itself.
func (b *mailbox) unpark(p *parked) {
	if b.parked == p {
		b.parked = nil
	}
}
