package celltest_test

import (
	"context"
	"errors"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// worker is the application under test. There are several of them. Each is
// registered under its name while it is up, and one at a time does the work.
type worker struct {
	name   string
	config client.Config
	work   func(ctx context.Context, token uint64) // must return soon after ctx has ended
}

// run works until ctx ends. After a lost session it opens another, and begins
// anew.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = w.session(ctx) // whatever the error, open another session
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// session works in one session: it returns when the session is lost, or ctx
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
		// Release a lost lock too: that tells the cell that the work has
		// stopped.
		if err := lock.Release(ctx); err != nil && !errors.Is(err, api.LockLost) {
			return err
		}
	}
}
