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
	w.T.Helper()
	all, err := q.DeadLetters(w.Ctx)
	w.OK(err)
	for _, one := range all {
		list = append(list, fmt.Sprintf("%s: %d, %s", one.ID, one.Attempts, one.Reason))
	}
	return list
}

// none checks that there is nothing to take.
func (w *world) none(q *Queue) {
	w.T.Helper()
	if got := w.takeAll(q); len(got) != 0 {
		w.T.Errorf("there is %v to take", got)
	}
	if n, err := q.Len(w.Ctx); n != 0 || err != nil {
		w.T.Errorf("%d items, %v", n, err)
	}
}

// An item that fails as often as it may is a dead letter, with the last reason: nobody takes it any more, until it is
// retried, with all its tries, or is discarded.
func TestQueueDeadLetters(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		o := QueueOptions{LockDelay: api.DefaultLockDelay, Attempts: 3}
		a, b := NewQueue(one, queueDir, o), NewQueue(two, queueDir, o)
		if err := a.Retry(w.Ctx, "p0.X"); !errors.Is(err, api.NotFound) {
			t.Errorf("of a queue that there is not: %v", err)
		}
		bad, err := a.Put(w.Ctx, []byte("bad"), Priority(1))
		w.OK(err)
		exhaust := func() {
			t.Helper()
			for n := 1; n <= 3; n++ {
				item, err := []*Queue{a, b}[n%2].Take(w.Ctx)
				w.OK(err)
				if item.ID() != bad || item.Attempt() != n || item.IsLastAttempt() != (n == 3) || string(item.Data) != "bad" {
					t.Errorf("%s is at try %d, want %d", item.ID(), item.Attempt(), n)
				}
				if err := a.Retry(w.Ctx, bad); !errors.Is(err, api.NotFound) {
					t.Errorf("what is worked on was retried: %v", err)
				}
				w.OK(item.Fail(w.Ctx, fmt.Sprint("reason ", n), 0))
			}
		}
		exhaust()
		w.none(a)
		w.Succeed()
		w.none(b)
		want := []string{bad + ": 3, reason 3"}
		if got := w.dead(b); !slices.Equal(got, want) {
			t.Errorf("dead letters %v, want %v", got, want)
		}
		got := make(chan *Item)
		go func() {
			item, err := b.Take(w.Ctx)
			if err != nil {
				t.Error(err)
			}
			got <- item
		}()
		pass(time.Second)
		began := time.Now()
		w.OK(a.Retry(w.Ctx, bad))
		item := <-got
		if took := time.Since(began); took > time.Second || item.Attempt() != 1 {
			t.Errorf("what was retried came after %v, at try %d", took, item.Attempt())
		}
		if err := a.Discard(w.Ctx, bad); !errors.Is(err, api.NotFound) {
			t.Errorf("what is worked on was discarded: %v", err)
		}
		w.OK(item.Abandon(w.Ctx))
		item, err = a.Take(w.Ctx)
		w.OK(err)
		w.OK(item.Fail(w.Ctx, "", 0))
		item, err = a.Take(w.Ctx)
		w.OK(err)
		w.OK(item.Fail(w.Ctx, "", 0))
		w.OK(b.Discard(w.Ctx, bad))
		if err := b.Discard(w.Ctx, bad); !errors.Is(err, api.NotFound) {
			t.Errorf("discarded again: %v", err)
		}
		w.none(a)
		if left := w.Read(one, queueDir); true {
			list, err := left.ReadDir(w.Ctx)
			w.OK(err)
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
		last := NewQueue(w.Client("last"), queueDir, o)
		id, err := last.Put(w.Ctx, nil)
		w.OK(err)
		for n := 1; n <= 3; n++ {
			c := w.Client(fmt.Sprint("h", n))
			item, err := NewQueue(c, queueDir, o).Take(w.Ctx)
			w.OK(err)
			if item.Attempt() != n {
				t.Errorf("try %d, want %d", item.Attempt(), n)
			}
			w.Expire(c.Session())
			pass(time.Second)
		}
		ctx, cancel := w.Brief(time.Minute)
		defer cancel()
		if item, err := last.Take(ctx); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("a fourth try: %v, %v", item, err)
		}
		if got := w.dead(last); len(got) != 1 || !strings.HasPrefix(got[0], id+": 3, try 3 did not say how it ended") {
			t.Errorf("dead letters %v", got)
		}
	})
}

// A mark says which contents are a dead letter's. One that is missing is made up for, also where nobody looks for
// items; and one of other contents is not believed, and removed.
func TestQueueMarks(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		q := NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 1})
		marks := func() (names []string) {
			list, err := w.Read(c, queueDir).ReadDir(w.Ctx)
			w.OK(err)
			for _, one := range list {
				if strings.HasPrefix(one.Path.Base(), deadPrefix) {
					names = append(names, one.Path.String())
				}
			}
			return names
		}
		id, err := q.Put(w.Ctx, []byte("x"))
		w.OK(err)
		item, err := q.Take(w.Ctx)
		w.OK(err)
		w.OK(item.Fail(w.Ctx, "bad", 0))
		first := marks()
		if len(first) != 1 {
			t.Fatalf("marks %v", first)
		}
		w.Rm(c, first[0]) // as if its worker had died in the moment
		if got := w.dead(q); len(got) != 1 {
			t.Errorf("without its mark: %v", got)
		}
		if list, err := q.List(w.Ctx); len(list) != 0 || err != nil {
			t.Errorf("it is an item: %v, %v", list, err)
		}
		w.idle(q)
		if got := marks(); !slices.Equal(got, first) {
			t.Errorf("marks %v, want %v", got, first)
		}
		w.OK(q.Retry(w.Ctx, id))
		w.Put(c, first[0], "") // as if the mark had come late
		w.Put(c, queueDir+"/dead-1.p0.GONE", "")
		item, err = q.Take(w.Ctx)
		w.OK(err)
		if item.Attempt() != 1 || len(marks()) != 0 {
			t.Errorf("try %d; marks %v", item.Attempt(), marks())
		}
		w.OK(item.Done(w.Ctx))
	})
}

// idle looks for an item, and finds none.
func (w *world) idle(q *Queue) {
	w.T.Helper()
	if got := w.takeAll(q); len(got) != 0 {
		w.T.Errorf("there is %v to take", got)
	}
}

// A worker that could add more dead letters takes nothing when there are as many as there may be; one without a limit does.
func TestQueueOfDeadLettersIsFull(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		w.Mkdir(c, queueDir)
		dead := string(itemRecord{Attempts: 1, Dead: true}.with(nil))
		for i := range MaxDeadLetters {
			id := fmt.Sprintf("p0.%d", i)
			h, err := c.Open(w.Ctx, queueDir+"/"+taskPrefix+id, client.OpenOptions{Write: true, Read: true, Create: client.NewFile, Contents: []byte(dead)})
			w.OK(err)
			stat, err := h.Stat(w.Ctx)
			w.OK(err)
			w.OK(h.Close(w.Ctx))
			markDead(w.Ctx, c, queueDir, id, stat.Content)
		}
		_, err := NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay}).Put(w.Ctx, nil)
		w.OK(err)
		ctx, cancel := w.Brief(time.Minute)
		defer cancel()
		if _, err := NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 1}).Take(ctx); !errors.Is(err, api.QuotaExceeded) {
			t.Errorf("with %d dead letters: %v", MaxDeadLetters, err)
		}
		w.OK(NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay}).Discard(w.Ctx, "p0.7"))
		item, err := NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 1}).Take(ctx)
		w.OK(err)
		w.OK(item.Done(w.Ctx))
	})
}
