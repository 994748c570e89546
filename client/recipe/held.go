package recipe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// NoLockDelay is no lock-delay, as the LockDelay of options: others get what a holder that has failed had as soon as its lease is over.
// It is for work whose servers check sequencers.
const NoLockDelay time.Duration = -1

// delayOf returns the lock-delay that options ask for.
func delayOf(option time.Duration) time.Duration {
	switch option {
	case 0:
		return api.DefaultLockDelay
	case NoLockDelay:
		return 0
	}
	return option
}

// ending is what is done at the end of something held, once and to its end: whoever waits for it may
// give up, and wait again. It runs until the cell has answered or the session is over, so that a lock
// is given back also when the time of the one who held it is over.
type ending struct {
	once sync.Once
	done chan struct{} // closed when err is set
	err  error
}

// run does it, or waits for another call that does, and returns what came of it. It waits until ctx has
// ended, and client.CleanupTime more if that was cancelled (client.Client.CleanupContext); then it is Uncertain,
// and goes on in the background.
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

// leave closes handles, all at once, and releases the locks held through them. It does so also when ctx
// has ended (client.Client.CleanupContext), and waits leaveTime at most: then it goes on in the background.
func leave(ctx context.Context, handles ...*client.Handle) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	var all sync.WaitGroup
	for _, h := range handles {
		all.Go(func() { _ = h.Close(ctx) }) // what cannot be closed ends with the session
	}
	all.Wait()
}

// giveUp releases a lock that is not wanted, or says of one that was lost that nothing is done under it.
func giveUp(ctx context.Context, l *client.Lock) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	_ = l.Release(ctx) // in the background then
}

// isBusy reports whether a lock was tried and not had, and is to be waited for. It may have been granted, and
// taken away by an operator before the answer was here (LockLost).
func isBusy(err error) bool {
	//mutant: return errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed) //by TestTakenInTheMomentOfTheGrant of ./client/recipe
	return errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed) || errors.Is(err, api.LockLost)
}

// passing reports whether the wait for a lock came to an end that says nothing of the next: its file was
// deleted, or the lock was taken away by an operator before the answer was here. Who wants it opens the file
// and waits again.
func passing(err error) bool { return errors.Is(err, api.HandleClosed) || errors.Is(err, api.LockLost) }

// held is a lock, with the handle that it is held through, which serves nothing else.
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

// release releases the lock and closes the handle; a later call waits for the same.
func (h *held) release(ctx context.Context) error {
	return h.end.run(ctx, h.c, "release", h.handle.Path(), func(ctx context.Context) error {
		err := h.lock.Release(ctx)
		if closing := h.handle.Close(ctx); err == nil {
			err = closing
		}
		return err
	})
}

// mkdir makes a directory if it is absent. The one that it is in must be there.
func mkdir(ctx context.Context, c *client.Client, dir string) error {
	h, err := c.Open(ctx, dir, client.OpenOptions{Read: true, Create: client.Directory})
	if err == nil {
		leave(ctx, h)
	}
	return err
}

// openIn opens a file of a recipe's directory, which is made if it is absent.
func openIn(ctx context.Context, c *client.Client, dir, name string, o client.OpenOptions) (*client.Handle, error) {
	h, err := c.Open(ctx, dir+"/"+name, o)
	if !errors.Is(err, api.NotFound) {
		return h, err
	}
	if err := mkdir(ctx, c, dir); err != nil {
		return nil, err
	}
	return c.Open(ctx, dir+"/"+name, o)
}
