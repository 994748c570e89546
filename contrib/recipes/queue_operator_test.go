//go:build linux

package recipes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/internal/hold"
)

// A lock that an operator takes away in the moment in which it is granted is waited for again: a worker that wants an item, or its turn, gets
// it.
func TestTakenInTheMomentOfTheGrant(t *testing.T) {
	t.Parallel()
	put := func(w *recipetest.World, operator *client.Client) {
		_, err := NewQueue(operator, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay}).Put(w.Ctx, nil)
		w.OK(err)
	}
	take := func(ctx context.Context, c *client.Client) error {
		item, err := NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay}).Take(ctx)
		if err != nil {
			return err
		}
		return item.Done(ctx)
	}
	recipetest.IsRobbed(t, queueDir+"/"+hold.TurnstileName, "Acquire", put, take)
	recipetest.IsRobbed(t, queueDir+"/"+taskPrefix, "TryAcquire", put, take)
}

// One whose turn is taken away by an operator keeps its session, and goes on waiting.
func TestTurnIsBroken(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, operator := w.Client("h1"), w.Client("operator")
		q := NewQueue(one, queueDir, QueueOptions{})
		took := make(chan error, 1)
		go func() {
			item, err := q.Take(w.Ctx)
			if err == nil {
				err = item.Done(w.Ctx)
			}
			took <- err
		}()
		pass(5 * time.Second)
		w.OK(operator.BreakLock(w.Ctx, queueDir+"/"+hold.TurnstileName, "a test", false))
		w.Lives(one)
		if _, err := NewQueue(operator, queueDir, QueueOptions{}).Put(w.Ctx, nil); err != nil {
			t.Error(err)
		}
		w.OK(<-took)
	})
}

// A pass says where it is, and reads the clock.
func TestPassReadsTheClock(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		p, err := NewDoubleBarrier(w.Client("h1"), partyDir, 1).Enter(w.Ctx)
		w.OK(err)
		if p.Path() != partyDir+"/"+p.name || p.Err() != nil || p.Done() != p.Context().Done() {
			t.Errorf("%s: %v", p.Path(), p.Err())
		}
		w.Jump("h1", api.DefaultLease+api.DefaultGrace)
		if p.Err() == nil {
			t.Error("it does not know that it may be taken for dead")
		}
	})
}

// An item says where it is, that it is held, and why it is not any more.
func TestItemSaysWhatItIs(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		q := NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay})
		id, err := q.Put(w.Ctx, nil)
		w.OK(err)
		item, err := q.Take(w.Ctx)
		w.OK(err)
		if item.Path() != queueDir+"/task-"+id || item.Err() != nil || item.Context().Err() != nil {
			t.Errorf("%s: %v, %v", item.Path(), item.Err(), item.Context().Err())
		}
		w.Expire(c.Session())
		<-c.Done()
		w.Settle()
		if err := item.Err(); !errors.Is(err, api.SessionExpired) || item.Context().Err() == nil {
			t.Errorf("%v, %v", err, item.Context().Err())
		}
	})
}

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
