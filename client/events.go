package client

import (
	"context"
	"errors"
	"iter"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Next waits for the next event of the handle, which must have been opened for
// some (Chubby §2.5). Besides those asked for there come, each in its place,
// EventHandleInvalid, EventLockLost, EventMasterFailedOver and EventLost; after
// the last two something may have been missed, and whoever looks again then
// misses nothing. Each event goes to one caller.
//
// At most api.MaxEventQueue events wait for a caller that is slow; of what comes
// then, one EventLost remains. When the handle is closed, poisoned or invalid,
// or the session is over, what still waits comes first, and then the error:
// HandleClosed or SessionExpired. If ctx ends, it is Cancelled or
// DeadlineExceeded, and nothing is taken. A handle without events is
// InvalidArgument.
func (h *Handle) Next(ctx context.Context) (api.Event, error) {
	const op = "wait for events"
	if !h.watches {
		return api.Event{}, &api.Error{Code: api.InvalidArgument, Op: op, Path: h.path, Message: "the handle was not opened for any; see OpenOptions.Events"}
	}
	for {
		if ctx.Err() != nil {
			return api.Event{}, h.nothing(ctx, op)
		}
		why := h.client.session.errIfGone() // known before the look: what was told by then is found
		e, news, broken := h.take()
		switch {
		case broken != nil:
			return api.Event{}, about(broken, op, h.path)
		case news == nil:
			return e, nil
		case why != nil:
			return api.Event{}, about(why, op, h.path)
		}
		select {
		case <-news:
		case <-h.client.session.ended.Done():
		case <-ctx.Done():
		}
	}
}

// nothing is the error of one whose time is over before there was an event.
func (h *Handle) nothing(ctx context.Context, op string) error {
	e := &api.Error{Code: api.DeadlineExceeded, Op: op, Path: h.path, Message: "nothing was told in that time", Err: contextError(ctx)}
	if errors.Is(ctx.Err(), context.Canceled) {
		e.Code, e.Message = api.Cancelled, "the wait was given up"
	}
	return e
}

// Events ranges over what Next returns. What comes last is the error that ended
// it, with a zero Event.
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

// take returns the oldest event; if there is none, why there will not be one any
// more, or a channel that is closed when there is reason to look again.
func (h *Handle) take() (e api.Event, news <-chan struct{}, broken *api.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case len(h.queue) > 0:
		e = h.queue[0]
		h.queue = h.queue[1:]
		return e, nil, nil
	case h.broken != nil:
		return e, nil, h.broken
	case h.news == nil:
		h.news = make(chan struct{})
	}
	h.queue = nil // and what it was kept in
	return e, h.news, nil
}

// push queues an event, if the handle is open for some and of use.
func (h *Handle) push(e api.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil {
		h.enqueue(e)
	}
}

// hear queues an event that the master of an epoch told. To a handle that this
// master was not shown yet nothing is told: another call on the handle has made
// the master know it, earlier than the audit could, and what happened before that
// call is missing. The application is told of the fail-over when the handle has
// been shown, and looks again then, which covers what is left out here: all but that
// another wants the lock, which is kept until then.
func (h *Handle) hear(epoch api.Epoch, e api.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch shown := h.token == nil || h.presented >= epoch; {
	case h.broken != nil:
	case shown:
		h.enqueue(e)
	case e.Kind == api.EventConflictingLock:
		h.wanted = &e
	}
}

// enqueue queues an event; mu is held. Nobody waits for the application: when
// the queue is full, one marker takes the place of all that comes until there is
// room again.
func (h *Handle) enqueue(e api.Event) {
	if !h.watches {
		return
	}
	e.Path = h.path
	if n := len(h.queue); n >= api.MaxEventQueue {
		if h.queue[n-1].Kind == api.EventLost {
			return
		}
		e = api.Event{Kind: api.EventLost, Path: h.path, Explanation: "events were dropped because too many waited; look again"}
	}
	h.queue = append(h.queue, e)
	h.wake()
}

// wake rouses those who wait in Next; mu is held.
func (h *Handle) wake() {
	if h.news != nil {
		close(h.news)
		h.news = nil
	}
}

// eventOf returns what the application is told.
func eventOf(e *chubbypb.Event) api.Event {
	return api.Event{
		Kind: api.EventKind(e.GetKind()), Child: e.GetChild(), Generation: api.Generation(e.GetGeneration()),
		Reason: api.EndReason(e.GetReason()), Explanation: e.GetExplanation(),
	}
}
