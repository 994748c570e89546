package client

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// eventQueue has the events of a handle. Handle.mu guards it.
type eventQueue struct {
	waiting  []api.Event   // not yet taken by Next; at most api.MaxEventQueue
	conflict *api.Event    // another client wants the lock: queue this after presenting the handle
	changed  chan struct{} // closed to wake callers of Next; nil without any
}

func (q *eventQueue) wakeNext() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// Next waits for the next event of the handle, which must have been opened for some kinds of events (Chubby
// §2.5). Besides those kinds it returns EventHandleInvalid, EventLockLost, EventMasterFailedOver and
// EventLost, each in its place. After the last two, events may be missing; a program that then looks at the
// node misses nothing, except changes of contents and children while its principal may not read: these cause
// no event, even when the right returns. Each event goes to one caller.
//
// At most api.MaxEventQueue events wait for a slow caller; of further ones, one EventLost remains, and
// EventHandleInvalid. When the handle is closed, poisoned or invalid, or the session is gone, Next first
// returns the waiting events, and then HandleClosed or SessionExpired. If ctx ends, the error is Cancelled or
// DeadlineExceeded, and no event is taken. A handle opened without events is InvalidArgument.
func (h *Handle) Next(ctx context.Context) (api.Event, error) {
	const op = "wait for events"
	if !h.openedFor.watches {
		return api.Event{}, &api.Error{Code: api.InvalidArgument, Op: op, Path: h.path, Message: "the handle was not opened for any; see OpenOptions.Events"}
	}
	for {
		if ctx.Err() != nil {
			message := "nothing was told in that time"
			if errors.Is(ctx.Err(), context.Canceled) {
				message = "the wait was given up"
			}
			return api.Event{}, &api.Error{Code: api.ContextCode(ctx.Err()), Op: op, Path: h.path, Message: message, Err: contextError(ctx)}
		}
		why := h.client.session.errIfGone() // before takeEvent, which then finds all earlier events
		e, news, broken := h.takeEvent()
		switch {
		case broken != nil:
			return api.Event{}, withOperation(broken, op, h.path)
		case news == nil:
			return e, nil
		case why != nil:
			return api.Event{}, withOperation(why, op, h.path)
		}
		select {
		case <-news:
		case <-h.client.session.ended.Done():
		case <-ctx.Done():
		}
	}
}

// Events ranges over the results of Next. The last pair is a zero Event and the final error.
func (h *Handle) Events(ctx context.Context) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for {
			e, err := h.Next(ctx)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// takeEvent takes the oldest event, or returns why no event will come, or a channel that is closed for the
// next try.
func (h *Handle) takeEvent() (e api.Event, news <-chan struct{}, broken *api.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case len(h.queue.waiting) > 0:
		e = h.queue.waiting[0]
		h.queue.waiting = h.queue.waiting[1:]
		h.client.session.counters.eventsDelivered.Add(1)
		return e, nil, nil
	case h.unusable != nil:
		return e, nil, h.unusable
	case h.queue.changed == nil:
		h.queue.changed = make(chan struct{})
	}
	h.queue.waiting = nil // frees the array
	return e, h.queue.changed, nil
}

// pushEvent is enqueueEvent, unless calls on the handle cannot succeed any more.
func (h *Handle) pushEvent(e api.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unusable == nil {
		h.enqueueEvent(e)
	}
}

// deliverEvent queues an event from the master of an epoch. It drops the event before the handle's
// presentation to this master: another call made the handle known before the audit, and earlier events are
// missing. The application looks again at EventMasterFailedOver, which follows, and so misses nothing; except
// a conflicting lock request, which deliverEvent keeps until then.
//
// If the event recalls a lock that may be kept, it returns a channel that is closed when the last returned
// lock is free, or nil. With recall it does nothing else.
func (h *Handle) deliverEvent(epoch api.Epoch, e api.Event, recall bool) (returned <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.Kind == api.EventConflictingLock && h.openedFor.cacheLock {
		h.lock.recall(h, e.Generation)
		returned = h.lock.returned
		//mutant: if _ = recall; !h.openedFor.watchesConflicts {
		if recall || !h.openedFor.watchesConflicts {
			return returned
		}
	}
	switch presented := h.token == nil || h.knownInEpoch >= epoch; {
	case h.unusable != nil:
	case presented:
		h.enqueueEvent(e)
	case e.Kind == api.EventConflictingLock:
		//mutant: h.queue.conflict = nil
		h.queue.conflict = &e
	}
	return returned
}

// enqueueEvent queues an event, if the handle was opened for events; mu is held. It never waits for the
// application: in a full queue, one EventLost replaces all events until there is room, except the handle's
// end, which is the last.
func (h *Handle) enqueueEvent(e api.Event) {
	if !h.openedFor.watches {
		return
	}
	e.Path = h.path
	if n := len(h.queue.waiting); n >= api.MaxEventQueue && e.Kind != api.EventHandleInvalid {
		h.client.session.counters.eventsDropped.Add(1)
		if h.queue.waiting[n-1].Kind == api.EventLost {
			return
		}
		e = api.Event{Kind: api.EventLost, Path: h.path, Explanation: "events were dropped because too many waited; look again"}
	}
	h.queue.waiting = append(h.queue.waiting, e)
	h.queue.wakeNext()
}

func eventOf(e *chubbypb.Event) api.Event {
	return api.Event{
		Kind: api.EventKind(e.GetKind()), Child: e.GetChild(), Generation: api.Generation(e.GetGeneration()),
		Reason: api.EndReason(e.GetReason()), Explanation: e.GetExplanation(),
	}
}

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
func (x *inbox) holdForAudit(after uint64, audited <-chan struct{}, next func() []*Lock) {
	x.holds = append(x.holds, hold{sequence: after + 1, done: audited, next: next})
}

// awaitReturns waits for the recalled locks: the acknowledgement tells a TryAcquire at the
// master that a lock still held is in use.
func (x *inbox) awaitReturns(ended context.Context) {
	if len(x.returns) == 0 { // usually
		return
	}
	over := time.After(maxReturn)
	for late := false; len(x.returns) > 0 && !late; x.returns = x.returns[1:] {
		select {
		case <-x.returns[0]:
		case <-ended.Done():
		case <-over:
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

// maxNotices limits the waiting notices of each kind: OnState has then been running for many minutes.
const maxNotices = 64

// notifier calls the logger and OnState, in order, without a mutex. It is a queue, not a channel, so that
// nothing waits for a slow logger or OnState.
type notifier struct {
	wake chan struct{} // capacity 1: the queue has work

	mu    sync.Mutex // guards queue; take no mutex under it
	queue []notice
}

type notice struct {
	tell     func()
	isChange bool // it reports a session's state; else it writes a log line
}

func newNotifier() *notifier { return &notifier{wake: make(chan struct{}, 1)} }

// enqueueLog queues a log line. If too many wait, the oldest is dropped.
func (n *notifier) enqueueLog(f func()) { n.enqueue(notice{tell: f}) }

// enqueueChange queues a report of the session's state. If too many wait, it replaces the newest: so the last
// report is the session's state.
func (n *notifier) enqueueChange(f func()) { n.enqueue(notice{tell: f, isChange: true}) }

func (n *notifier) enqueue(one notice) {
	n.mu.Lock()
	var same []int // the indices of those of its kind
	for i, waiting := range n.queue {
		if waiting.isChange == one.isChange {
			same = append(same, i)
		}
	}
	if len(same) >= maxNotices {
		drop := same[0]
		if one.isChange {
			drop = same[len(same)-1]
		}
		n.queue = slices.Delete(n.queue, drop, drop+1)
	}
	n.queue = append(n.queue, one)
	n.mu.Unlock()
	wakeUp(n.wake)
}

func (n *notifier) deliverAll(stop <-chan struct{}) {
	for stopped := false; !stopped; {
		select {
		case <-n.wake:
		case <-stop:
			//mutant: return
			stopped = true
		}
		n.mu.Lock()
		queue := n.queue
		n.queue = nil
		n.mu.Unlock()
		for _, one := range queue {
			one.tell()
		}
	}
}
