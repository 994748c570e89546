package client

import (
	"github.com/chubbylock/chubby/api/chubbypb"
)

// inbox keeps what was heard of the events of one epoch, and what of that may be
// acknowledged. It belongs to the goroutine that sends KeepAlives.
//
// An acknowledgement says that the owner has stopped. When the master takes a
// lock away, it waits for the acknowledgement of that, and then gives the lock
// to another (decision 10). So the event that a lock was lost is not
// acknowledged because it was received, but when the lock's owner has let go: by
// Release, or by Close of the handle or of the client. As an acknowledgement is
// of everything up to a sequence number, what came later waits with it; what came
// before does not. The same holds for the end of the session, which takes away
// every lock. Events that are missing may have been any: they hold back until
// every lock was asked about.
//
// That an event was received is told apart from that, and at once: nobody else's
// change of what is cached here waits for the owner of a lock.
type inbox struct {
	seen    uint64 // sequence of the newest event
	pending []hold // in the order of their sequences
}

// hold is the reason not to acknowledge an event.
type hold struct {
	sequence uint64
	over     <-chan struct{} // closed when the reason is
	// rest returns what has come to light meanwhile, and holds back in its place;
	// nil for nothing.
	rest func() []*Lock
}

// news reports whether an event is one after those seen, and notes it. gap says
// that some between them are missing.
func (x *inbox) news(e *chubbypb.Event) (fresh, gap bool) {
	sequence := e.GetSequence()
	if sequence <= x.seen {
		return false, false
	}
	gap = sequence != x.seen+1
	x.seen = sequence
	return true, gap
}

// await holds the newest event back until the owners of locks have let go.
func (x *inbox) await(locks ...*Lock) {
	for _, l := range locks {
		x.pending = append(x.pending, hold{sequence: x.seen, over: l.released})
	}
}

// doubt holds everything after a sequence back until an audit is done, and then
// until the owners of the locks that rest returns have let go.
func (x *inbox) doubt(after uint64, one *audit, rest func() []*Lock) {
	x.pending = append(x.pending, hold{sequence: after + 1, over: one.done, rest: rest})
}

// settle drops the holds at the front that are over.
func (x *inbox) settle() {
	for len(x.pending) > 0 {
		first := x.pending[0]
		select {
		case <-first.over:
		default:
			return
		}
		x.pending = x.pending[1:]
		if first.rest == nil {
			continue
		}
		var more []hold
		for _, l := range first.rest() {
			more = append(more, hold{sequence: first.sequence, over: l.released})
		}
		x.pending = append(more, x.pending...)
	}
}

// acknowledged returns the sequence up to which events may be acknowledged.
func (x *inbox) acknowledged() uint64 {
	x.settle()
	if len(x.pending) > 0 {
		return x.pending[0].sequence - 1
	}
	return x.seen
}

// held returns a channel that is closed when the first reason to hold back is
// over; nil if nothing is held back.
func (x *inbox) held() <-chan struct{} {
	x.settle()
	if len(x.pending) > 0 {
		return x.pending[0].over
	}
	return nil
}
