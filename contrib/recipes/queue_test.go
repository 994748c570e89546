//go:build linux

package recipes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

const queueDir = "/ls/local/queue"

// Items come out in the order they went in, each to one worker, and go when they are done.
func TestQueue(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		a, b := NewQueue(one, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay}), NewQueue(two, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay})
		if n, err := a.Len(w.Ctx); n != 0 || err != nil {
			t.Errorf("before anything: %d, %v", n, err)
		}
		var ids []string
		for i := range 5 {
			id, err := a.Put(w.Ctx, []byte{byte(i)})
			w.OK(err)
			ids = append(ids, id)
		}
		var items []*Item
		for i := range 5 {
			item, err := []*Queue{a, b}[i%2].Take(w.Ctx)
			w.OK(err)
			if item.ID() != ids[i] || item.Data[0] != byte(i) {
				t.Errorf("item %d is %s, %v", i, item.ID(), item.Data)
			}
			items = append(items, item)
		}
		w.Succeed()
		ctx, cancel := w.Brief(time.Second)
		if _, err := b.Take(ctx); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("a sixth: %v", err)
		}
		cancel()
		w.OK(items[3].Abandon(w.Ctx))
		w.OK(items[1].Abandon(w.Ctx))
		for _, i := range []int{1, 3} {
			item, err := a.Take(w.Ctx)
			w.OK(err)
			if item.ID() != ids[i] {
				t.Errorf("instead of item %d there is %s, %v", i, item.ID(), item.Data)
			}
			w.OK(item.Done(w.Ctx))
			w.OK(item.Done(w.Ctx))
			w.OK(item.Abandon(w.Ctx))
		}
		if err := items[1].Done(w.Ctx); !errors.Is(err, api.NotHeld) {
			t.Errorf("Done after Abandon: %v", err)
		}
		if n, err := b.Len(w.Ctx); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// Who waits has the next item at once, whether it is new or given up, also after a fail-over; and one
// whose worker dies after lease and lock-delay, and then the first worker is refused.
func TestQueueWaits(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two, three := w.Client("h1"), w.Client("h2"), w.Client("h3")
		a, b := NewQueue(one, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay}), NewQueue(two, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay})
		got := make(chan *Item)
		take := func() {
			go func() {
				item, err := b.Take(w.Ctx)
				if err != nil {
					t.Error(err)
				}
				got <- item
			}()
			pass(10 * time.Second)
			w.Succeed()
			pass(20 * time.Second)
		}
		began := func(what string, most time.Duration, f func()) *Item {
			at := time.Now()
			f()
			item := <-got
			if took := time.Since(at); took > most {
				t.Errorf("%s: it took %v", what, took)
			}
			return item
		}
		take()
		began("a new item", time.Second, func() {
			_, err := a.Put(w.Ctx, []byte("new"))
			w.OK(err)
		})
		_, err := a.Put(w.Ctx, []byte("given up"))
		w.OK(err)
		item, err := a.Take(w.Ctx)
		w.OK(err)
		take()
		began("an item that is given up", time.Second, func() { w.OK(item.Abandon(w.Ctx)) })
		_, err = a.Put(w.Ctx, []byte("lost"))
		w.OK(err)
		item, err = a.Take(w.Ctx)
		w.OK(err)
		take()
		cut := time.Now()
		next := began("an item whose worker died", api.DefaultLease+api.DefaultLockDelay+3*time.Second, func() {
			w.Cut("h1")
			<-item.Context().Done()
		})
		if took := time.Since(cut); took < api.DefaultLockDelay || next.ID() != item.ID() {
			t.Errorf("%s was taken from %s after %v", item.ID(), next.ID(), took)
		}
		if err := three.CheckSequencer(w.Ctx, item.Sequencer().String()); !errors.Is(err, api.BadSequencer) {
			t.Errorf("the sequencer of who lost it: %v", err)
		}
		w.Heal("h1")
		if err := item.Done(w.Ctx); !errors.Is(err, api.LockLost) && !errors.Is(err, api.SessionExpired) {
			t.Errorf("Done of who lost it: %v", err)
		}
		if err := next.Context().Err(); err != nil {
			t.Error(err)
		}
		w.OK(next.Done(w.Ctx))
	})
}

// One whose lock was broken is refused, although its session lives.
func TestQueueDoneIsRefused(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		a, b := NewQueue(one, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay}), NewQueue(two, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay})
		_, err := a.Put(w.Ctx, nil)
		w.OK(err)
		item, err := a.Take(w.Ctx)
		w.OK(err)
		w.OK(two.BreakLock(w.Ctx, item.Lock().Path(), "a test", true))
		next, err := b.Take(w.Ctx)
		w.OK(err)
		if err := item.Done(w.Ctx); !errors.Is(err, api.LockLost) {
			t.Errorf("Done of who lost it: %v", err)
		}
		w.OK(next.Done(w.Ctx))
	})
}

// ledger is what became of items, as workers tell it.
type ledger struct {
	mu   sync.Mutex // guards done
	done map[string]int
}

// No item is lost, none is worked on by two at a time, and each is done once, whoever dies, gives up or
// takes over.
func TestQueueRandom(t *testing.T) {
	t.Parallel()
	const workers = 4
	inWorld(t, func(w *world) {
		s := recipetest.NewStorm(w.World, 1, *rounds)
		books := &ledger{done: map[string]int{}}
		work := func(c *client.Client, r *rand.Rand) error {
			ctx, cancel := w.Brief(time.Duration(r.IntN(60_000)) * time.Millisecond)
			defer cancel()
			item, err := NewQueue(c, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay}).Take(ctx)
			if err != nil {
				return err
			}
			s.Hold(item.Context(), r, item.ID(), 1)
			if r.IntN(5) == 0 {
				return item.Abandon(ctx)
			}
			if err := item.Done(ctx); err != nil && !errors.Is(err, api.Uncertain) {
				return err
			}
			if err := item.Done(w.Ctx); err != nil {
				return err
			}
			books.note(item.ID())
			return nil
		}
		for i := range workers {
			s.Live(fmt.Sprintf("h%d", i), work)
		}
		for i := range 2 {
			s.Live(fmt.Sprintf("p%d", i), func(c *client.Client, r *rand.Rand) error {
				ctx, cancel := w.Brief(time.Duration(r.IntN(10_000)) * time.Millisecond)
				defer cancel()
				id, err := NewQueue(c, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay}).Put(ctx, []byte("x"))
				if err == nil {
					books.put(id)
				}
				pass(time.Duration(r.IntN(2_000)) * time.Millisecond)
				return err
			})
		}
		s.Rage(time.Second, 0)
		c := w.Client("last")
		q := NewQueue(c, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay})
		for n, err := q.Len(w.Ctx); n > 0; n, err = q.Len(w.Ctx) {
			w.OK(err)
			item, err := q.Take(w.Ctx)
			w.OK(err)
			w.OK(item.Done(w.Ctx))
			books.note(item.ID())
		}
		books.check(t)
	})
}

func (l *ledger) put(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[id] += 0
}

func (l *ledger) note(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[id]++
}

func (l *ledger) check(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := 0
	for id, n := range l.done {
		if n > 1 {
			t.Errorf("item %s was done %d times", id, n)
		}
		if n == 0 {
			lost++ // or its worker's session ended before it heard that it was done
		}
	}
	t.Logf("%d items, of which %d were done by workers who did not hear of it", len(l.done), lost)
	if lost > len(l.done)/10 || len(l.done) < *rounds/10 {
		t.Errorf("%d of %d items were not done", lost, len(l.done))
	}
}
