//go:build linux

package recipes

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// What a recipe holds is given back at once, also by those whose context has ended, as that of a program that got a signal. The
// session stays open, and frees nothing.
func TestGivenBackWithEndedContext(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(w *world, c *client.Client) (giveBack func(context.Context) error, err error){
		"item, done": func(w *world, c *client.Client) (func(context.Context) error, error) {
			q := NewQueue(c, "/ls/local/queue", QueueOptions{LockDelay: api.DefaultLockDelay})
			for range 2 {
				if _, err := q.Put(w.ctx, nil); err != nil {
					return nil, err
				}
			}
			i, err := q.Take(w.ctx)
			return i.Done, err
		},
		"item, abandoned": func(w *world, c *client.Client) (func(context.Context) error, error) {
			q := NewQueue(c, "/ls/local/queue", QueueOptions{LockDelay: api.DefaultLockDelay})
			if n, err := q.Len(w.ctx); err != nil || n == 0 {
				if _, err := q.Put(w.ctx, nil); err != nil {
					return nil, err
				}
			}
			i, err := q.Take(w.ctx)
			return i.Abandon, err
		},
		"item, returned": func(w *world, c *client.Client) (func(context.Context) error, error) {
			q := NewQueue(c, "/ls/local/queue", QueueOptions{LockDelay: api.DefaultLockDelay})
			if n, err := q.Len(w.ctx); err != nil || n == 0 {
				if _, err := q.Put(w.ctx, nil); err != nil {
					return nil, err
				}
			}
			i, err := q.Take(w.ctx)
			return i.Return, err
		},
		"barrier": func(w *world, c *client.Client) (func(context.Context) error, error) {
			b := NewBarrier(c, "/ls/local/barrier", BarrierOptions{Ephemeral: true})
			err := NewBarrier(c, "/ls/local/barrier", BarrierOptions{}).Wait(w.ctx) // nil only if it is not raised
			if err == nil {
				err = b.Raise(w.ctx)
			}
			return b.Lift, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inSmallWorld(t, func(w *world) {
				one, two := w.dial("one"), w.dial("two")
				giveBack, err := take(w, one)
				w.ok(err)
				over, cancel := context.WithCancel(w.ctx)
				cancel()
				w.ok(giveBack(over))
				began := time.Now()
				again, err := take(w, two)
				w.ok(err)
				if d := time.Since(began); d > time.Second {
					t.Errorf("the next had it after %v", d)
				}
				w.ok(again(w.ctx))
				if err := one.Err(); err != nil {
					t.Errorf("the first session: %v", err)
				}
			})
		})
	}
}
