package client

import (
	"context"
	"iter"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Next waits for the next event of the handle, which must have been opened for some
// kinds of events (Chubby §2.5). Besides those kinds it returns, each in its place,
// EventHandleInvalid, EventLockLost, EventMasterFailedOver and EventLost. After the
// last two events may have been missed; a program that looks at the node again then
// misses nothing, but for what is done to contents and children while its principal has
// not the right to read: of that no event tells, nor is there one when it has the right
// again. Each event is returned to one caller.
//
// At most api.MaxEventQueue events wait for a caller that is slow; of further ones,
// one EventLost remains, and EventHandleInvalid. When the handle is closed, poisoned or invalid, or the
// session is gone, Next first returns the events that wait, and then the error:
// HandleClosed or SessionExpired. If ctx ends, the error is Cancelled or
// DeadlineExceeded, and no event is taken. For a handle that was opened without
// events it is InvalidArgument.
func (h *Handle) Next(ctx context.Context) (api.Event, error) {
	const op = "wait for events"
	if !h.watches {
		return api.Event{}, &api.Error{Code: api.InvalidArgument, Op: op, Path: h.path, Message: "the handle was not opened for any; see OpenOptions.Events"}
	}
	for {
		if ctx.Err() != nil {
			return api.Event{}, h.noEventError(ctx, op)
		}
		why := h.client.session.errIfGone() // before takeEvent, which then finds all events that came before the end
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

// noEventError is the error of a call of Next whose context has ended.
func (h *Handle) noEventError(ctx context.Context, op string) error {
	e := &api.Error{Code: api.ContextCode(ctx.Err()), Op: op, Path: h.path, Message: "nothing was told in that time", Err: contextError(ctx)}
	if e.Code == api.Cancelled {
		e.Message = "the wait was given up"
	}
	return e
}

// Events ranges over what Next returns. The last pair is a zero Event and the error
// that ended the sequence.
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

// takeEvent takes the oldest event. If there is none, it returns why there will be
// none any more, or a channel that is closed when there is reason to try again.
func (h *Handle) takeEvent() (e api.Event, news <-chan struct{}, broken *api.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case len(h.events) > 0:
		e = h.events[0]
		h.events = h.events[1:]
		h.client.session.counters.eventsDelivered.Add(1)
		return e, nil, nil
	case h.unusable != nil:
		return e, nil, h.unusable
	case h.eventsChanged == nil:
		h.eventsChanged = make(chan struct{})
	}
	h.events = nil // frees the array
	return e, h.eventsChanged, nil
}

// pushEvent is enqueueEvent, unless calls on the handle cannot succeed any more.
func (h *Handle) pushEvent(e api.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unusable == nil {
		h.enqueueEvent(e)
	}
}

// deliverEvent queues an event that came from the master of an epoch. It drops the
// event if the handle was not presented to this master yet: then another call on the
// handle has made it known to the master before the audit could, and events from
// before that call are missing. The application looks again when
// EventMasterFailedOver comes, after the handle was presented, and so misses nothing
// that is dropped here; except that another client wants the lock, which is kept
// until then.
//
// If the event recalls a lock that may be kept, it returns a channel that is closed when the last lock that was
// given back is free; nil if none was. With recall it does nothing else.
func (h *Handle) deliverEvent(epoch api.Epoch, e api.Event, recall bool) (returned <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.Kind == api.EventConflictingLock && h.kept.wanted {
		h.kept.recall(h, e.Generation)
		returned = h.kept.returned
		//mutant: if _ = recall; !h.kept.tellsConflicts {
		if recall || !h.kept.tellsConflicts {
			return returned
		}
	}
	switch presented := h.token == nil || h.knownInEpoch >= epoch; {
	case h.unusable != nil:
	case presented:
		h.enqueueEvent(e)
	case e.Kind == api.EventConflictingLock:
		//mutant: h.pendingConflict = nil
		h.pendingConflict = &e
	}
	return returned
}

// enqueueEvent queues an event, if the handle was opened for events; mu is held. It
// never waits for the application: when the queue is full, one EventLost takes the
// place of all further events until there is room again, except the end of the handle,
// which is the last.
func (h *Handle) enqueueEvent(e api.Event) {
	if !h.watches {
		return
	}
	e.Path = h.path
	if n := len(h.events); n >= api.MaxEventQueue && e.Kind != api.EventHandleInvalid {
		h.client.session.counters.eventsDropped.Add(1)
		if h.events[n-1].Kind == api.EventLost {
			return
		}
		e = api.Event{Kind: api.EventLost, Path: h.path, Explanation: "events were dropped because too many waited; look again"}
	}
	h.events = append(h.events, e)
	h.wakeWaiters()
}

// wakeWaiters wakes all that wait in Next; mu is held.
func (h *Handle) wakeWaiters() {
	if h.eventsChanged != nil {
		close(h.eventsChanged)
		h.eventsChanged = nil
	}
}

// eventOf returns the event as the application gets it.
func eventOf(e *chubbypb.Event) api.Event {
	return api.Event{
		Kind: api.EventKind(e.GetKind()), Child: e.GetChild(), Generation: api.Generation(e.GetGeneration()),
		Reason: api.EndReason(e.GetReason()), Explanation: e.GetExplanation(),
	}
}
