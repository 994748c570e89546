package recipe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// NoLockDelay is a LockDelay with which the locks of a failed holder are free when its lease ends. It is for
// work whose servers check sequencers.
const NoLockDelay time.Duration = -1

func delayOf(option time.Duration) time.Duration {
	switch option {
	case 0:
		return api.DefaultLockDelay
	case NoLockDelay:
		return 0
	}
	return option
}

// ending runs the end of something held, once. Callers may stop waiting and wait again. It runs until the
// cell has answered or the session has ended, even after the caller's deadline.
type ending struct {
	once sync.Once
	done chan struct{} // closed when err is set
	err  error
}

// run does act, or waits for another call's. It waits until ctx has ended, and client.CleanupTime more if ctx
// was cancelled (client.Client.CleanupContext); then the error is Uncertain, and act goes on in the
// background.
func (e *ending) run(ctx context.Context, c *client.Client, op, path string, act func(ctx context.Context) error) error {
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

// leave closes handles, all at once, and releases their locks, also after ctx has ended
// (client.Client.CleanupContext). It waits at most leaveTime; the rest goes on in the background.
func leave(ctx context.Context, handles ...*client.Handle) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	var all sync.WaitGroup
	for _, h := range handles {
		all.Go(func() { _ = h.Close(ctx) }) // the session's end closes the rest
	}
	all.Wait()
}

// giveUp releases an unwanted lock, or confirms that no work runs under a lost one.
func giveUp(ctx context.Context, l *client.Lock) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	_ = l.Release(ctx) // continues in the background
}

// isBusy reports whether a tried lock was not had, and should be waited for. LockLost: an operator took it
// before the answer came.
func isBusy(err error) bool {
	//mutant: return errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed) //by TestTakenInTheMomentOfTheGrant of ./client/recipe
	return errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed) || errors.Is(err, api.LockLost)
}

// passing reports whether the wait for a lock may be repeated: its file was deleted, or an operator took the
// lock before the answer came. The caller opens the file and waits again.
func passing(err error) bool { return errors.Is(err, api.HandleClosed) || errors.Is(err, api.LockLost) }

// held is a lock with a handle of its own, which only Release gives up.
type held struct {
	c      *client.Client
	handle *client.Handle
	lock   *client.Lock
	end    ending
}

// take opens a node and waits for its lock; try takes it only if it is free.
func take(ctx context.Context, c *client.Client, path string, o client.OpenOptions, mode api.LockMode, try bool, options ...client.LockOption) (*held, error) {
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
		leave(ctx, h)
		return nil, err
	}
	return &held{c: c, handle: h, lock: l}, nil
}

// Context is that of the work under the lock; it ends as client.Lock's does.
func (h *held) Context() context.Context { return h.lock.Context() }

// Done is closed when Context ends.
func (h *held) Done() <-chan struct{} { return h.Context().Done() }

// Err checks the clock, and returns why the lock is unreliable, or nil.
func (h *held) Err() error { return h.lock.Err() }

// Path returns the path of the lock's file.
func (h *held) Path() string { return h.handle.Path() }

// Lock returns the lock, for its sequencer and token. Only Release releases it.
func (h *held) Lock() *client.Lock { return h.lock }

// Release releases the lock, and returns as client.Lock.Release does. After
// Uncertain it goes on in the background; another call waits for it again.
func (h *held) Release(ctx context.Context) error {
	return h.end.run(ctx, h.c, "release", h.Path(), func(ctx context.Context) error {
		err := h.lock.Release(ctx)
		if closing := h.handle.Close(ctx); err == nil {
			err = closing
		}
		return err
	})
}

// openIn opens a file of a recipe's directory, and makes an absent directory.
func openIn(ctx context.Context, c *client.Client, dir, name string, o client.OpenOptions) (*client.Handle, error) {
	h, err := c.Open(ctx, dir+"/"+name, o)
	if !errors.Is(err, api.NotFound) {
		return h, err
	}
	d, err := c.Open(ctx, dir, client.OpenOptions{Read: true, Create: client.Directory})
	if err != nil {
		return nil, err
	}
	leave(ctx, d)
	return c.Open(ctx, dir+"/"+name, o)
}
