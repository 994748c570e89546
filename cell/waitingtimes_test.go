package cell_test

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// For how long a request has waited is shown over a fail-over.
func TestWaitingTimesSurviveFailOvers(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		holder := dial(t, ctx, c, "holder", client.Config{})
		acquire(t, ctx, open(t, ctx, holder, "/ls/local/lock", 0))
		waiter := dial(t, ctx, c, "waiter", client.Config{})
		h := open(t, ctx, waiter, "/ls/local/lock", 0)
		wait, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(done)
			_, _ = h.Acquire(wait, api.Exclusive)
		}()
		for range 2 {
			time.Sleep(2 * time.Minute)
			c.Restart(c.FailOver())
			time.Sleep(20 * time.Second)
			locks, err := holder.Cell().Locks(ctx, "/ls/local/lock")
			if err != nil || len(locks) != 1 || len(locks[0].Waiters) != 1 {
				t.Fatalf("%+v, %v", locks, err)
			}
			if is, shown := time.Since(began), locks[0].Waiters[0].Waiting; shown < is-2*time.Second || shown > is {
				t.Errorf("it has waited for %v, and %v is shown", is, shown)
			}
		}
		cancel()
		<-done
	})
}
