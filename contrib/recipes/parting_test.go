//go:build linux

package recipes

import (
	"context"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

// What a recipe holds is given back at once, also by those whose context has ended, as that of a program that got a signal. The
// session stays open, and frees nothing.
func TestGivenBackWithEndedContext(t *testing.T) {
	t.Parallel()
	recipetest.GivesBack(t, map[string]recipetest.Take{
		"item, done": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			q := NewQueue(c, "/ls/local/queue", QueueOptions{LockDelay: api.DefaultLockDelay})
			for range 2 {
				if _, err := q.Put(w.Ctx, nil); err != nil {
					return nil, err
				}
			}
			i, err := q.Take(w.Ctx)
			return i.Done, err
		},
		"item, abandoned": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			q := NewQueue(c, "/ls/local/queue", QueueOptions{LockDelay: api.DefaultLockDelay})
			if n, err := q.Len(w.Ctx); err != nil || n == 0 {
				if _, err := q.Put(w.Ctx, nil); err != nil {
					return nil, err
				}
			}
			i, err := q.Take(w.Ctx)
			return i.Abandon, err
		},
		"item, returned": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			q := NewQueue(c, "/ls/local/queue", QueueOptions{LockDelay: api.DefaultLockDelay})
			if n, err := q.Len(w.Ctx); err != nil || n == 0 {
				if _, err := q.Put(w.Ctx, nil); err != nil {
					return nil, err
				}
			}
			i, err := q.Take(w.Ctx)
			return i.Return, err
		},
		"barrier": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			b := NewBarrier(c, "/ls/local/barrier", BarrierOptions{Ephemeral: true})
			err := NewBarrier(c, "/ls/local/barrier", BarrierOptions{}).Wait(w.Ctx) // nil only if it is not raised
			if err == nil {
				err = b.Raise(w.Ctx)
			}
			return b.Lift, err
		},
		"double barrier": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := NewDoubleBarrier(c, "/ls/local/double", 1).Enter(w.Ctx)
			return p.Leave, err
		},
	})
}
