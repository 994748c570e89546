package recipes

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// lockDelay returns the lock-delay that an option asks for.
func lockDelay(option time.Duration) time.Duration {
	switch option {
	case 0:
		return api.DefaultLockDelay
	case recipe.NoLockDelay:
		return 0
	}
	return option
}

// held is a lock, with the handle that it is held through, which serves nothing else.
type held struct {
	c      *client.Client
	handle *client.Handle
	lock   *client.Lock

	once sync.Once
	done chan struct{} // closed when err is set
	err  error         // of its end
}

// end does what ends it, once and to its end, or waits for another call that does, and returns what came of it. It waits until ctx has
// ended, and client.CleanupTime more if that was cancelled (client.Client.CleanupContext); then it is Uncertain, and goes on in the
// background until the cell has answered or the session is over.
func (h *held) end(ctx context.Context, op string, act func(ctx context.Context) error) error {
	ctx, cancel := h.c.CleanupContext(ctx)
	defer cancel()
	h.once.Do(func() {
		h.done = make(chan struct{})
		go func() {
			defer close(h.done)
			h.err = act(context.WithoutCancel(ctx))
		}()
	})
	select {
	case <-h.done:
		return h.err
	case <-ctx.Done():
	}
	select {
	case <-h.done:
		return h.err
	default:
	}
	return &api.Error{Code: api.Uncertain, Op: op, Path: h.handle.Path(), Err: ctx.Err(),
		Message: "it goes on in the background until the cell answers; call it again to wait for that"}
}

// release releases the lock and closes the handle.
func (h *held) release(ctx context.Context) error {
	return h.end(ctx, "release", func(ctx context.Context) error {
		err := h.lock.Release(ctx)
		if closing := h.handle.Close(ctx); err == nil {
			err = closing
		}
		return err
	})
}

// giveUp releases a lock that is not wanted, or says of one that was lost that nothing is done under it.
func giveUp(ctx context.Context, l *client.Lock) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	_ = l.Release(ctx) // in the background then
}

// isBusy reports whether a lock was tried and not had, and is to be waited for. It may have been granted, and taken away by an operator
// before the answer was here (LockLost).
func isBusy(err error) bool {
	//mutant: return errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed)
	return errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed) || errors.Is(err, api.LockLost)
}
