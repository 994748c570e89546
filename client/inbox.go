package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// inbox knows the arrived events of one epoch, and which of them may be acknowledged. It belongs to the
// goroutine of the keeper.
//
// An acknowledgement says that the owner has stopped: the master waits for it before it gives a lock taken
// away to another (decision 10). So the client acknowledges the loss of a lock not when the event arrives,
// but when the owner has released it: by Release, or by Close of the handle or of the client. An
// acknowledgement covers everything up to a sequence number, so later events wait with it. The end of the
// session takes away every lock, and waits in the same way. Missing events may be of any kind: nothing after
// them is acknowledged before every lock was audited.
//
// The client reports the receipt of an event separately, and at once: so a change of a node cached here never
// waits for the owner of a lock.
type inbox struct {
	seen  uint64 // sequence of the newest event
	holds []hold // by sequence

	returns []<-chan struct{} // each closed when a recalled lock is back
}

// hold is a reason to acknowledge neither an event nor later ones.
type hold struct {
	sequence uint64
	done     <-chan struct{} // closed when the reason has ended
	// next returns the locks that are the next reason, until they are released; it may be nil.
	next func() []*Lock
}

// noteSequence records an event. fresh: it is new; gap: earlier events are missing.
func (x *inbox) noteSequence(e *chubbypb.Event) (fresh, gap bool) {
	sequence := e.GetSequence()
	if sequence <= x.seen {
		return false, false
	}
	gap = sequence != x.seen+1
	x.seen = sequence
	return true, gap
}

func (x *inbox) holdForLocks(locks ...*Lock) {
	for _, l := range locks {
		x.holds = append(x.holds, hold{sequence: x.seen, done: l.released})
	}
}

// holdForAudit holds everything after a sequence until an audit is done, and next's locks are released.
func (x *inbox) holdForAudit(after uint64, one *audit, next func() []*Lock) {
	x.holds = append(x.holds, hold{sequence: after + 1, done: one.done, next: next})
}

// awaitReturns waits for the recalled locks: the acknowledgement tells a TryAcquire at the
// master that a lock still held is in use.
func (x *inbox) awaitReturns(ended context.Context) {
	if len(x.returns) == 0 { // usually
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

func (x *inbox) acknowledged() uint64 {
	x.dropEndedHolds()
	if len(x.holds) > 0 {
		return x.holds[0].sequence - 1
	}
	return x.seen
}

// firstHold returns a channel that is closed when the reason of the first hold has ended; nil without a hold.
func (x *inbox) firstHold() <-chan struct{} {
	x.dropEndedHolds()
	if len(x.holds) > 0 {
		return x.holds[0].done
	}
	return nil
}
