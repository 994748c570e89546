package celltest_test

import (
	"context"
	"errors"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// worker is the application under test. Several of them run, each of them is
// registered under its name while it is up, and one at a time does the work.
type worker struct {
	name   string
	config client.Config
	work   func(ctx context.Context, token uint64) // to return soon when ctx has ended
}

// run works until ctx ends. A session that is lost is followed by another, in
// which everything begins anew.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = w.session(ctx) // whatever ended it, the answer is the same
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// session is what happens in one session: it returns when that is lost, or ctx
// ends.
func (w *worker) session(ctx context.Context) error {
	c, err := client.New(ctx, w.config)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	if _, err := c.Open(ctx, "/ls/local/up-"+w.name, client.OpenOptions{Write: true, Create: client.File, Ephemeral: true}); err != nil {
		return err
	}
	h, err := c.Open(ctx, "/ls/local/work", client.OpenOptions{Write: true, Create: client.File, LockDelay: api.DefaultLockDelay})
	if err != nil {
		return err
	}
	for {
		lock, err := h.Acquire(ctx, api.Exclusive)
		if err != nil {
			return err
		}
		working, stop := context.WithCancel(lock.Context())
		context.AfterFunc(ctx, stop)
		w.work(working, lock.Token())
		stop()
		// Also of a lock that was lost: it says that the work has stopped.
		if err := lock.Release(ctx); err != nil && !errors.Is(err, api.LockLost) {
			return err
		}
	}
}
