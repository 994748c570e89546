package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// inbox knows which events of one epoch have arrived, and which of them may be
// acknowledged. It belongs to the goroutine of the keeper.
//
// An acknowledgement says that the owner has stopped. When the master takes a lock
// away, it waits for the acknowledgement of that, and then gives the lock to another
// (decision 10). So the loss of a lock is not acknowledged when the event arrives,
// but when the lock's owner has released it: by Release, or by Close of the handle or
// of the client. Since an acknowledgement is for everything up to a sequence number,
// later events wait with it, and earlier ones do not. The same holds for the end of
// the session, which takes away every lock. Missing events may have been of any kind:
// nothing after them is acknowledged before every lock was audited.
//
// That an event was received is reported apart from that, and at once: so nobody's
// change of a node that is cached here waits for the owner of a lock.
type inbox struct {
	seen  uint64 // sequence of the newest event
	holds []hold // in the order of their sequences

	returns []<-chan struct{} // each is closed when a recalled lock has been given back
}

// hold is a reason not to acknowledge an event and what came after it.
type hold struct {
	sequence uint64
	done     <-chan struct{} // closed when the reason has ceased
	// next returns the locks that are the reason after that, until they are released;
	// it may be nil.
	next func() []*Lock
}

// noteSequence notes an event. fresh says that it was not noted before, and gap that
// events before it are missing.
func (x *inbox) noteSequence(e *chubbypb.Event) (fresh, gap bool) {
	sequence := e.GetSequence()
	if sequence <= x.seen {
		return false, false
	}
	gap = sequence != x.seen+1
	x.seen = sequence
	return true, gap
}

// holdForLocks holds the newest event until the owners of the locks have released
// them.
func (x *inbox) holdForLocks(locks ...*Lock) {
	for _, l := range locks {
		x.holds = append(x.holds, hold{sequence: x.seen, done: l.released})
	}
}

// holdForAudit holds everything after a sequence until an audit is done, and then
// until the owners of the locks that next returns have released them.
func (x *inbox) holdForAudit(after uint64, one *audit, next func() []*Lock) {
	x.holds = append(x.holds, hold{sequence: after + 1, done: one.done, next: next})
}

// awaitReturns waits until the locks that were recalled have been given back: the acknowledgement tells a
// TryAcquire at the master that a lock which is still held is in use.
func (x *inbox) awaitReturns(ended context.Context) {
	if len(x.returns) == 0 { // mostly
		return
	}
	timer := time.NewTimer(maxReturn)
	defer timer.Stop()
	for late := false; len(x.returns) > 0 && !late; x.returns = x.returns[1:] {
		select {
		case <-x.returns[0]:
		case <-ended.Done():
		case <-timer.C:
			late = true
		}
	}
	x.returns = nil
}

// dropEndedHolds drops the holds at the front whose reasons have ceased.
func (x *inbox) dropEndedHolds() {
	for len(x.holds) > 0 {
		first := x.holds[0]
		select {
		case <-first.done:
		default:
			return
		}
		x.holds = x.holds[1:]
		if first.next == nil {
			continue
		}
		var more []hold
		for _, l := range first.next() {
			more = append(more, hold{sequence: first.sequence, done: l.released})
		}
		x.holds = append(more, x.holds...)
	}
}

// acknowledged returns the sequence up to which events may be acknowledged.
func (x *inbox) acknowledged() uint64 {
	x.dropEndedHolds()
	if len(x.holds) > 0 {
		return x.holds[0].sequence - 1
	}
	return x.seen
}

// firstHold returns a channel that is closed when the reason of the first hold has
// ceased; nil if nothing is held.
func (x *inbox) firstHold() <-chan struct{} {
	x.dropEndedHolds()
	if len(x.holds) > 0 {
		return x.holds[0].done
	}
	return nil
}
