//go:build linux

package recipes

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// An item that is returned is as it was before it was taken: the try does not count, however often workers that cannot begin
// take it, and its place, priority, data and last reason are those of before.
func TestQueueReturn(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		q := NewQueue(w.Client("h1"), queueDir, QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 3})
		first, err := q.Put(w.Ctx, []byte("one"), Priority(1), Delay(time.Minute))
		w.OK(err)
		_, err = q.Put(w.Ctx, []byte("two"), Priority(1))
		w.OK(err)
		pass(2 * time.Minute)
		item, err := q.Take(w.Ctx)
		w.OK(err)
		w.OK(item.Fail(w.Ctx, "bad luck", 0))
		for range 7 {
			began := time.Now()
			item, err := q.Take(w.Ctx)
			w.OK(err)
			if item.ID() != first || item.Attempt() != 2 || string(item.Data) != "one" || time.Since(began) > time.Second {
				t.Errorf("%s is at try %d with %q, after %v", item.ID(), item.Attempt(), item.Data, time.Since(began))
			}
			item.Data[0] = 'x' // of the worker's own copy
			w.OK(item.Return(w.Ctx))
			w.OK(item.Return(w.Ctx))
			w.OK(item.Abandon(w.Ctx))
			if err := item.Fail(w.Ctx, "", 0); !errors.Is(err, api.NotHeld) {
				t.Errorf("Fail after Return: %v", err)
			}
			list, err := q.List(w.Ctx)
			w.OK(err)
			if len(list) != 2 || list[0].ID != first || list[0].Attempts != 1 || list[0].Reason != "bad luck" || len(list[0].Holders) != 0 {
				t.Errorf("after Return: %+v", list)
			}
		}
		item, err = q.Take(w.Ctx)
		w.OK(err)
		w.OK(item.Fail(w.Ctx, "", 0))
		w.OK(item.Return(w.Ctx)) // which does nothing
		item, err = q.Take(w.Ctx)
		w.OK(err)
		if item.Attempt() != 3 || !item.IsLastAttempt() {
			t.Errorf("the last try is %d", item.Attempt())
		}
		w.OK(item.Abandon(w.Ctx))
	})
}

// A try whose worker died before is not forgotten by one that is returned.
func TestQueueReturnKeepsWhatWasBefore(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		dead := w.Client("dead")
		o := QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 2}
		_, err := NewQueue(dead, queueDir, o).Put(w.Ctx, nil)
		w.OK(err)
		_, err = NewQueue(dead, queueDir, o).Take(w.Ctx)
		w.OK(err)
		w.Expire(dead.Session())
		q := NewQueue(w.Client("h1"), queueDir, o)
		item, err := q.Take(w.Ctx)
		w.OK(err)
		w.OK(item.Return(w.Ctx))
		item, err = q.Take(w.Ctx)
		w.OK(err)
		if item.Attempt() != 2 || !item.IsLastAttempt() {
			t.Errorf("it is at try %d, want 2", item.Attempt())
		}
		w.OK(item.Abandon(w.Ctx))
		w.none(q)
		if got := w.dead(q); len(got) != 1 || !strings.Contains(got[0], ": 2, try 2 did not say how it ended") {
			t.Errorf("dead letters %v", got)
		}
	})
}

// The timer that was set before, and ends in the moment in which another is set, does not pass for that: it would
// end a delay that has just begun.
func TestQueueTimerThatWasSetAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		early := 0
		for range 3_000 {
			k, one := &taking{news: make(chan struct{}, 1)}, &busyItem{stop: func() {}}
			k.after(one, time.Second)
			time.Sleep(time.Second)
			k.after(one, time.Hour)
			synctest.Wait()
			if one.hasRung() {
				early++
			}
			one.end()
		}
		if early > 0 {
			t.Errorf("a timer of an hour has rung at once %d times", early)
		}
	})
}

const farAway = 100 * time.Millisecond // each way

// far opens a session of a client whose calls take their time, so that much may happen between two of them.
func (w *world) far() *client.Client {
	w.T.Helper()
	w.Slow("far", farAway)
	return w.Client("far")
}

// An item that is given back after another has read it, and before that one has its lock, is not begun by what was read: the
// last try stays the last one, and its reason is kept.
func TestQueueItemIsWrittenAfterItWasRead(t *testing.T) {
	t.Parallel()
	for at := time.Duration(0); at < 20*farAway; at += farAway / 2 {
		inSmallWorld(t, func(w *world) {
			o := QueueOptions{Attempts: 1}
			near := NewQueue(w.Client("near"), queueDir, o)
			_, err := near.Put(w.Ctx, nil)
			w.OK(err)
			item, err := near.Take(w.Ctx)
			w.OK(err)
			far := NewQueue(w.far(), queueDir, o)
			got := make(chan error, 1)
			go func() {
				ctx, cancel := w.Brief(10 * time.Second)
				defer cancel()
				_, err := far.Take(ctx)
				got <- err
			}()
			pass(at)
			w.OK(item.Fail(w.Ctx, "bad", 0))
			if err := <-got; !errors.Is(err, api.DeadlineExceeded) {
				t.Errorf("given back after %v, it was taken again: %v", at, err)
			}
			if dead, err := near.DeadLetters(w.Ctx); err != nil || len(dead) != 1 || dead[0].Reason != "bad" || dead[0].Attempts != 1 {
				t.Errorf("given back after %v: %+v, %v", at, dead, err)
			}
		})
	}
}

// A try is not counted, nor begun, if the lock was taken away before the count was written.
func TestQueueTryOfWhoWasRobbedIsNotCounted(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		operator := w.Client("operator")
		id, err := NewQueue(operator, queueDir, QueueOptions{}).Put(w.Ctx, nil)
		w.OK(err)
		far := w.far()
		got := make(chan *Item, 1)
		go func() {
			item, err := NewQueue(far, queueDir, QueueOptions{}).Take(w.Ctx)
			if err != nil {
				t.Error(err)
			}
			got <- item
		}()
		path := queueDir + "/" + taskPrefix + id
		for held := false; !held; pass(farAway / 20) {
			locks, err := operator.Cell().Locks(w.Ctx, path)
			w.OK(err)
			held = len(locks) == 1 && len(locks[0].Holders) == 1
		}
		w.OK(operator.BreakLock(w.Ctx, path, "a test", true)) // far does not know yet that it had it
		item := <-got
		if item == nil {
			return
		}
		pass(time.Second)
		if err := item.Err(); err != nil || item.Attempt() != 1 {
			t.Errorf("it is at try %d: %v", item.Attempt(), err)
		}
	})
}
