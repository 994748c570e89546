package client

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
)

// Poison makes every operation on the handle fail at once, with HandleClosed that wraps Poisoned: pending
// ones, in any goroutine, and later ones. It closes nothing (Chubby §2.6): the node stays open and a lock
// held until Close, which must still be called and works, as does Release of the lock. Operations that had
// begun are settled in the background, as after the end of their contexts.
func (h *Handle) Poison() {
	why := &api.Error{Code: api.HandleClosed, Err: Poisoned, Message: "this handle was poisoned; close it, and open the node again"}
	h.mu.Lock()
	if h.unusable == nil {
		h.unusable = why
	}
	h.wakeWaiters()
	h.mu.Unlock()
	h.endPoisonCtx(Poisoned)
}

// beginCall begins a call on the handle, unless none can succeed any more. Its context ends with ctx or when
// the handle is poisoned. Until leave is called, Close does not park the handle for another Open, which would
// change the rest of this call.
func (h *Handle) beginCall(ctx context.Context, op string) (within context.Context, leave context.CancelFunc, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unusable != nil {
		return nil, nil, withOperation(h.unusable, op, h.path)
	}
	h.callsInFlight++
	within, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.poisonCtx, func() { cancel(context.Cause(h.poisonCtx)) })
	return within, func() {
		stop()
		cancel(nil)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.callsInFlight--
	}, nil
}

func (h *Handle) poisonedError(op string, err error) error {
	if !errors.Is(err, Poisoned) || errors.Is(err, api.HandleClosed) {
		return err
	}
	message := "this handle was poisoned while the operation waited"
	if errors.Is(err, api.Uncertain) {
		message += "; it may or may not have been done, and if not, it will not be"
	}
	return &api.Error{Code: api.HandleClosed, Op: op, Path: h.path, Err: Poisoned, Message: message}
}
