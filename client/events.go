package client

import (
	"context"
	"errors"
	"iter"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

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
	if !h.watches {
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

// enqueueEvent queues an event, if the handle was opened for events; mu is held. It never waits for the
// application: in a full queue, one EventLost replaces all events until there is room, except the handle's
// end, which is the last.
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

func (h *Handle) wakeWaiters() {
	if h.eventsChanged != nil {
		close(h.eventsChanged)
		h.eventsChanged = nil
	}
}

func eventOf(e *chubbypb.Event) api.Event {
	return api.Event{
		Kind: api.EventKind(e.GetKind()), Child: e.GetChild(), Generation: api.Generation(e.GetGeneration()),
		Reason: api.EndReason(e.GetReason()), Explanation: e.GetExplanation(),
	}
}
