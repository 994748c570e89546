package recipes

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// turnstile lets one worker of a queue through at a time, in the order in which they came to it: it is the lock of a file, whose queue is the
// cell's. It guards nothing, so it needs no lock-delay: if it lets two through, because the lock was broken or the session of one is over,
// they look both. One whose lock was broken lets go of it at once, as the cell extends no lease until the owner has, and goes on.
type turnstile struct {
	c      *client.Client
	dir    string
	places chan struct{} // one for each who is at the cell
	made   atomic.Bool   // the file was there
}

const (
	turnstileName = "turnstile"
	// maxQueued is how many of one process are in the cell's queue at a time; the others wait in the process. Each takes one of the
	// api.MaxOutstanding requests of the session, and those who have what is waited for need some to give it back.
	maxQueued = 32
)

func newTurnstile(c *client.Client, dir string) *turnstile {
	return &turnstile{c: c, dir: dir, places: make(chan struct{}, maxQueued)}
}

// open opens the file, which is created if it is absent.
func (t *turnstile) open(ctx context.Context) (*client.Handle, error) {
	return openIn(ctx, t.c, t.dir, turnstileName, client.OpenOptions{Read: true, Write: true, Create: client.File})
}

// ensure creates the file if it is absent, once: so there is room for it, also if what it is for takes all that a quota leaves.
func (t *turnstile) ensure(ctx context.Context) error {
	if t.made.Load() {
		return nil
	}
	h, err := t.open(ctx)
	if err != nil {
		return err
	}
	leave(ctx, h)
	t.made.Store(true)
	return nil
}

// enter waits for its turn. A worker that was let through calls leave.
func (t *turnstile) enter(ctx context.Context, reason string) (*client.Handle, error) {
	select {
	case t.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.c.Done():
		return nil, t.c.Err()
	}
	h, err := t.pass(ctx, reason)
	// The wait came to an end that says nothing of the next: the file was deleted, or an operator took the lock away before the answer was
	// here.
	//mutant: for false {
	for errors.Is(err, api.HandleClosed) || errors.Is(err, api.LockLost) {
		h, err = t.pass(ctx, reason)
	}
	if err != nil {
		<-t.places
	}
	return h, err
}

// pass waits for its turn once.
func (t *turnstile) pass(ctx context.Context, reason string) (*client.Handle, error) {
	h, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	l, err := h.Acquire(ctx, api.Exclusive, client.Reason(reason))
	if err != nil {
		leave(ctx, h)
		return nil, err
	}
	// It does nothing after leave; before, it ends when the cell has answered or the session is over.
	context.AfterFunc(l.Context(), func() { _ = l.Release(context.WithoutCancel(ctx)) })
	return h, nil
}

// leave lets the next one through.
func (t *turnstile) leave(ctx context.Context, h *client.Handle) {
	leave(ctx, h)
	<-t.places
}
