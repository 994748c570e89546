package client

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
)

// Poison makes every operation on the handle fail, at once, with HandleClosed
// that wraps Poisoned: those that wait now, in whichever goroutine, and all
// later ones. It closes nothing (Chubby §2.6): the node stays open and a lock
// stays held until Close, which is still to be called and does its work, as does
// Release of the lock. What an operation that fails so had begun is settled in
// the background, as after the end of its context.
func (h *Handle) Poison() {
	why := &api.Error{Code: api.HandleClosed, Err: Poisoned, Message: "this handle was poisoned; close it, and open the node again"}
	h.mu.Lock()
	if h.broken == nil {
		h.broken = why
	}
	h.wake()
	h.mu.Unlock()
	h.spoil(Poisoned)
}

// enter begins a call on the handle, unless none can succeed any more. It returns
// ctx, but ended when the handle is poisoned. Until leave is called, Close does not
// keep the handle for another Open: what the call does would be done through that
// one's.
func (h *Handle) enter(ctx context.Context, op string) (within context.Context, leave context.CancelFunc, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		return nil, nil, about(h.broken, op, h.path)
	}
	h.running++
	within, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.poison, func() { cancel(context.Cause(h.poison)) })
	return within, func() {
		stop()
		cancel(nil)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.running--
	}, nil
}

// poisoned returns the error of an operation, made HandleClosed if it ended
// because the handle was poisoned.
func (h *Handle) poisoned(op string, err error) error {
	if !errors.Is(err, Poisoned) || errors.Is(err, api.HandleClosed) {
		return err
	}
	message := "this handle was poisoned while the operation waited"
	if errors.Is(err, api.Uncertain) {
		message += "; it may or may not have been done, and if not, it will not be"
	}
	return &api.Error{Code: api.HandleClosed, Op: op, Path: h.path, Err: Poisoned, Message: message}
}
