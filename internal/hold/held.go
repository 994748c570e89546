package hold

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// LeaveTime limits how long the end of a recipe waits to close a handle or release a lock while the cell is
// away; the rest goes on in the background.
const LeaveTime = 2 * time.Second

// NoLockDelay is recipe.NoLockDelay.
const NoLockDelay time.Duration = -1

// Delay returns the lock-delay that an option of a recipe asks for.
func Delay(option time.Duration) time.Duration {
	switch option {
	case 0:
		return api.DefaultLockDelay
	case NoLockDelay:
		return 0
	}
	return option
}

// Ending runs the end of something held, once. Callers may stop waiting and wait again. It runs until the
// cell has answered or the session has ended, even after the caller's deadline.
type Ending struct {
	once sync.Once
	done chan struct{} // closed when err is set
	err  error
}

// Run does act, or waits for another call's. It waits until ctx has ended, and client.CleanupTime more if ctx
// was cancelled (client.Client.CleanupContext); then the error is Uncertain, and act goes on in the
// background.
func (e *Ending) Run(ctx context.Context, c *client.Client, op, path string, act func(ctx context.Context) error) error {
	ctx, cancel := c.CleanupContext(ctx)
	defer cancel()
	e.once.Do(func() {
		e.done = make(chan struct{})
		go func() {
			defer close(e.done)
			e.err = act(context.WithoutCancel(ctx))
		}()
	})
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
	}
	select {
	case <-e.done:
		return e.err
	default:
	}
	return &api.Error{Code: api.Uncertain, Op: op, Path: path, Err: ctx.Err(),
		Message: "it goes on in the background until the cell answers; call it again to wait for that"}
}

// Held is a lock with a handle of its own.
type Held struct {
	Client *client.Client
	Handle *client.Handle
	Lock   *client.Lock
	end    Ending
}

// Take opens a node and waits for its lock; try takes it only if it is free.
func Take(
	ctx context.Context, c *client.Client, path string, o client.OpenOptions, mode api.LockMode, try bool, options ...client.LockOption,
) (*Held, error) {
	h, err := c.Open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	acquire := h.Acquire
	if try {
		acquire = h.TryAcquire
	}
	l, err := acquire(ctx, mode, options...)
	if err != nil {
		Leave(ctx, h)
		return nil, err
	}
	return &Held{Client: c, Handle: h, Lock: l}, nil
}

// End ends the hold by act, which gives it up in its own way, or waits for the end that has begun (Ending.Run).
func (h *Held) End(ctx context.Context, op string, act func(ctx context.Context) error) error {
	return h.end.Run(ctx, h.Client, op, h.Handle.Path(), act)
}

// Release releases the lock and closes the handle. It returns as client.Lock.Release does.
func (h *Held) Release(ctx context.Context) error {
	return h.End(ctx, "release", func(ctx context.Context) error {
		err := h.Lock.Release(ctx)
		if closing := h.Handle.Close(ctx); err == nil {
			err = closing
		}
		return err
	})
}

// Leave closes handles, all at once, and releases their locks, also after ctx has ended
// (client.Client.CleanupContext). It waits at most LeaveTime; the rest goes on in the background.
func Leave(ctx context.Context, handles ...*client.Handle) {
	ctx, cancel := context.WithTimeout(ctx, LeaveTime)
	defer cancel()
	var all sync.WaitGroup
	for _, h := range handles {
		all.Go(func() { _ = h.Close(ctx) }) // the session's end closes the rest
	}
	all.Wait()
}

// GiveUp releases an unwanted lock, or confirms that no work runs under a lost one.
func GiveUp(ctx context.Context, l *client.Lock) {
	ctx, cancel := context.WithTimeout(ctx, LeaveTime)
	defer cancel()
	_ = l.Release(ctx) // continues in the background
}

// OpenIn opens a file of a recipe's directory, and makes an absent directory.
func OpenIn(ctx context.Context, c *client.Client, dir, name string, o client.OpenOptions) (*client.Handle, error) {
	h, err := c.Open(ctx, dir+"/"+name, o)
	if !errors.Is(err, api.NotFound) {
		return h, err
	}
	d, err := c.Open(ctx, dir, client.OpenOptions{Read: true, Create: client.Directory})
	if err != nil {
		return nil, err
	}
	Leave(ctx, d)
	return c.Open(ctx, dir+"/"+name, o)
}
