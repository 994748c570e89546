//go:build linux

package recipes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// dead returns the dead letters, as "id: attempts, reason".
func (w *world) dead(q *Queue) (list []string) {
	w.t.Helper()
	all, err := q.DeadLetters(w.ctx)
	w.ok(err)
	for _, one := range all {
		list = append(list, fmt.Sprintf("%s: %d, %s", one.ID, one.Attempts, one.Reason))
	}
	return list
}

// none checks that there is nothing to take.
func (w *world) none(q *Queue) {
	w.t.Helper()
	if got := w.takeAll(q); len(got) != 0 {
		w.t.Errorf("there is %v to take", got)
	}
	if n, err := q.Len(w.ctx); n != 0 || err != nil {
		w.t.Errorf("%d items, %v", n, err)
	}
}

// An item that fails as often as it may is a dead letter, with the last reason: nobody takes it any more, until it is
// retried, with all its tries, or is discarded.
func TestQueueDeadLetters(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		o := QueueOptions{LockDelay: api.DefaultLockDelay, Attempts: 3}
		a, b := NewQueue(one, queueDir, o), NewQueue(two, queueDir, o)
		if err := a.Retry(w.ctx, "p0.X"); !errors.Is(err, api.NotFound) {
			t.Errorf("of a queue that there is not: %v", err)
		}
		bad, err := a.Put(w.ctx, []byte("bad"), Priority(1))
		w.ok(err)
		exhaust := func() {
			t.Helper()
			for n := 1; n <= 3; n++ {
				item, err := []*Queue{a, b}[n%2].Take(w.ctx)
				w.ok(err)
				if item.ID() != bad || item.Attempt() != n || item.IsLastAttempt() != (n == 3) || string(item.Data) != "bad" {
					t.Errorf("%s is at try %d, want %d", item.ID(), item.Attempt(), n)
				}
				if err := a.Retry(w.ctx, bad); !errors.Is(err, api.NotFound) {
					t.Errorf("what is worked on was retried: %v", err)
				}
				w.ok(item.Fail(w.ctx, fmt.Sprint("reason ", n), 0))
			}
		}
		exhaust()
		w.none(a)
		w.failOver()
		w.none(b)
		want := []string{bad + ": 3, reason 3"}
		if got := w.dead(b); !slices.Equal(got, want) {
			t.Errorf("dead letters %v, want %v", got, want)
		}
		got := make(chan *Item)
		go func() {
			item, err := b.Take(w.ctx)
			if err != nil {
				t.Error(err)
			}
			got <- item
		}()
		pass(time.Second)
		began := time.Now()
		w.ok(a.Retry(w.ctx, bad))
		item := <-got
		if took := time.Since(began); took > time.Second || item.Attempt() != 1 {
			t.Errorf("what was retried came after %v, at try %d", took, item.Attempt())
		}
		if err := a.Discard(w.ctx, bad); !errors.Is(err, api.NotFound) {
			t.Errorf("what is worked on was discarded: %v", err)
		}
		w.ok(item.Abandon(w.ctx))
		item, err = a.Take(w.ctx)
		w.ok(err)
		w.ok(item.Fail(w.ctx, "", 0))
		item, err = a.Take(w.ctx)
		w.ok(err)
		w.ok(item.Fail(w.ctx, "", 0))
		w.ok(b.Discard(w.ctx, bad))
		if err := b.Discard(w.ctx, bad); !errors.Is(err, api.NotFound) {
			t.Errorf("discarded again: %v", err)
		}
		w.none(a)
		if left := w.read(one, queueDir); true {
			list, err := left.ReadDir(w.ctx)
			w.ok(err)
			if len(list) != 1 {
				t.Errorf("there is more left than the turnstile: %v", list)
			}
		}
	})
}

// The tries of workers that die count, too, and the last one makes the item a dead letter.
func TestQueueCountsWorkersThatDie(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		o := QueueOptions{LockDelay: api.DefaultLockDelay, Attempts: 3}
		last := NewQueue(w.dial("last"), queueDir, o)
		id, err := last.Put(w.ctx, nil)
		w.ok(err)
		for n := 1; n <= 3; n++ {
			c := w.dial(fmt.Sprint("h", n))
			item, err := NewQueue(c, queueDir, o).Take(w.ctx)
			w.ok(err)
			if item.Attempt() != n {
				t.Errorf("try %d, want %d", item.Attempt(), n)
			}
			w.Expire(c.Session())
			pass(time.Second)
		}
		ctx, cancel := w.brief(time.Minute)
		defer cancel()
		if item, err := last.Take(ctx); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("a fourth try: %v, %v", item, err)
		}
		if got := w.dead(last); len(got) != 1 || !strings.HasPrefix(got[0], id+": 3, try 3 did not say how it ended") {
			t.Errorf("dead letters %v", got)
		}
	})
}

// Who has lost an item cannot give it back: another's try goes on, and its count stands.
func TestQueueFailIsRefused(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		o := QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 2}
		a, b := NewQueue(one, queueDir, o), NewQueue(two, queueDir, o)
		_, err := a.Put(w.ctx, nil)
		w.ok(err)
		item, err := a.Take(w.ctx)
		w.ok(err)
		w.ok(two.BreakLock(w.ctx, item.Path(), "a test", true))
		next, err := b.Take(w.ctx)
		w.ok(err)
		if err := item.Fail(w.ctx, "too late", 0); !errors.Is(err, api.LockLost) {
			t.Errorf("Fail of who lost it: %v", err)
		}
		list, err := b.List(w.ctx)
		if err != nil || len(list) != 1 || list[0].Attempts != 2 || list[0].Reason != "" || len(list[0].Holders) != 1 {
			t.Errorf("%+v, %v", list, err)
		}
		w.ok(next.Done(w.ctx))
	})
}

// A mark says which contents are a dead letter's. One that is missing is made up for, also where nobody looks for
// items; and one of other contents is not believed, and removed.
func TestQueueMarks(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.dial("h1")
		q := NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 1})
		marks := func() (names []string) {
			list, err := w.read(c, queueDir).ReadDir(w.ctx)
			w.ok(err)
			for _, one := range list {
				if strings.HasPrefix(one.Path.Base(), deadPrefix) {
					names = append(names, one.Path.String())
				}
			}
			return names
		}
		id, err := q.Put(w.ctx, []byte("x"))
		w.ok(err)
		item, err := q.Take(w.ctx)
		w.ok(err)
		w.ok(item.Fail(w.ctx, "bad", 0))
		first := marks()
		if len(first) != 1 {
			t.Fatalf("marks %v", first)
		}
		w.rm(c, first[0]) // as if its worker had died in the moment
		if got := w.dead(q); len(got) != 1 {
			t.Errorf("without its mark: %v", got)
		}
		if list, err := q.List(w.ctx); len(list) != 0 || err != nil {
			t.Errorf("it is an item: %v, %v", list, err)
		}
		w.idle(q)
		if got := marks(); !slices.Equal(got, first) {
			t.Errorf("marks %v, want %v", got, first)
		}
		w.ok(q.Retry(w.ctx, id))
		w.put(c, first[0], "") // as if the mark had come late
		w.put(c, queueDir+"/dead-1.p0.GONE", "")
		item, err = q.Take(w.ctx)
		w.ok(err)
		if item.Attempt() != 1 || len(marks()) != 0 {
			t.Errorf("try %d; marks %v", item.Attempt(), marks())
		}
		w.ok(item.Done(w.ctx))
	})
}

// idle looks for an item, and finds none.
func (w *world) idle(q *Queue) {
	w.t.Helper()
	if got := w.takeAll(q); len(got) != 0 {
		w.t.Errorf("there is %v to take", got)
	}
}

// A worker that could add more dead letters takes nothing when there are as many as there may be; one without a limit does.
func TestQueueOfDeadLettersIsFull(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.dial("h1")
		w.mkdir(c, queueDir)
		dead := string(itemRecord{Attempts: 1, Dead: true}.with(nil))
		for i := range MaxDeadLetters {
			id := fmt.Sprintf("p0.%d", i)
			h, err := c.Open(w.ctx, queueDir+"/"+taskPrefix+id, client.OpenOptions{Write: true, Read: true, Create: client.NewFile, Contents: []byte(dead)})
			w.ok(err)
			stat, err := h.Stat(w.ctx)
			w.ok(err)
			w.ok(h.Close(w.ctx))
			markDead(w.ctx, c, queueDir, id, stat.Content)
		}
		_, err := NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay}).Put(w.ctx, nil)
		w.ok(err)
		ctx, cancel := w.brief(time.Minute)
		defer cancel()
		if _, err := NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 1}).Take(ctx); !errors.Is(err, api.QuotaExceeded) {
			t.Errorf("with %d dead letters: %v", MaxDeadLetters, err)
		}
		w.ok(NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay}).Discard(w.ctx, "p0.7"))
		item, err := NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 1}).Take(ctx)
		w.ok(err)
		w.ok(item.Done(w.ctx))
	})
}
