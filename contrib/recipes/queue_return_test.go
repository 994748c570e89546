//go:build linux

package recipes

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client/recipe"
)

// An item that is returned is as it was before it was taken: the try does not count, however often workers that cannot begin
// take it, and its place, priority, data and last reason are those of before.
func TestQueueReturn(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		q := NewQueue(w.dial("h1"), queueDir, QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 3})
		first, err := q.Put(w.ctx, []byte("one"), Priority(1), Delay(time.Minute))
		w.ok(err)
		_, err = q.Put(w.ctx, []byte("two"), Priority(1))
		w.ok(err)
		pass(2 * time.Minute)
		item, err := q.Take(w.ctx)
		w.ok(err)
		w.ok(item.Fail(w.ctx, "bad luck", 0))
		for range 7 {
			began := time.Now()
			item, err := q.Take(w.ctx)
			w.ok(err)
			if item.ID() != first || item.Attempt() != 2 || string(item.Data) != "one" || time.Since(began) > time.Second {
				t.Errorf("%s is at try %d with %q, after %v", item.ID(), item.Attempt(), item.Data, time.Since(began))
			}
			item.Data[0] = 'x' // of the worker's own copy
			w.ok(item.Return(w.ctx))
			w.ok(item.Return(w.ctx))
			w.ok(item.Abandon(w.ctx))
			if err := item.Fail(w.ctx, "", 0); !errors.Is(err, api.NotHeld) {
				t.Errorf("Fail after Return: %v", err)
			}
			list, err := q.List(w.ctx)
			w.ok(err)
			if len(list) != 2 || list[0].ID != first || list[0].Attempts != 1 || list[0].Reason != "bad luck" || len(list[0].Holders) != 0 {
				t.Errorf("after Return: %+v", list)
			}
		}
		item, err = q.Take(w.ctx)
		w.ok(err)
		w.ok(item.Fail(w.ctx, "", 0))
		w.ok(item.Return(w.ctx)) // which does nothing
		item, err = q.Take(w.ctx)
		w.ok(err)
		if item.Attempt() != 3 || !item.IsLastAttempt() {
			t.Errorf("the last try is %d", item.Attempt())
		}
		w.ok(item.Abandon(w.ctx))
	})
}

// A try whose worker died before is not forgotten by one that is returned.
func TestQueueReturnKeepsWhatWasBefore(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		dead := w.dial("dead")
		o := QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 2}
		_, err := NewQueue(dead, queueDir, o).Put(w.ctx, nil)
		w.ok(err)
		_, err = NewQueue(dead, queueDir, o).Take(w.ctx)
		w.ok(err)
		w.Expire(dead.Session())
		q := NewQueue(w.dial("h1"), queueDir, o)
		item, err := q.Take(w.ctx)
		w.ok(err)
		w.ok(item.Return(w.ctx))
		item, err = q.Take(w.ctx)
		w.ok(err)
		if item.Attempt() != 2 || !item.IsLastAttempt() {
			t.Errorf("it is at try %d, want 2", item.Attempt())
		}
		w.ok(item.Abandon(w.ctx))
		w.none(q)
		if got := w.dead(q); len(got) != 1 || !strings.Contains(got[0], ": 2, try 2 did not say how it ended") {
			t.Errorf("dead letters %v", got)
		}
	})
}

// Who has lost an item cannot return it: another's try goes on, and counts.
func TestQueueReturnIsRefused(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		a, b := NewQueue(one, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay}), NewQueue(two, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay})
		_, err := a.Put(w.ctx, nil)
		w.ok(err)
		item, err := a.Take(w.ctx)
		w.ok(err)
		w.ok(two.BreakLock(w.ctx, item.Path(), "a test", true))
		next, err := b.Take(w.ctx)
		w.ok(err)
		if err := item.Return(w.ctx); !errors.Is(err, api.LockLost) {
			t.Errorf("Return of who lost it: %v", err)
		}
		list, err := b.List(w.ctx)
		if err != nil || len(list) != 1 || list[0].Attempts != 2 || len(list[0].Holders) != 1 {
			t.Errorf("%+v, %v", list, err)
		}
		w.ok(next.Done(w.ctx))
	})
}
