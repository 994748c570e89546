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
	"github.com/chubbylock/chubby/client"
)

const queueDir = "/ls/local/queue"

// Items come out in the order they went in, each to one worker, and go when they are done.
func TestQueue(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		a, b := NewQueue(one, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay}), NewQueue(two, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay})
		if n, err := a.Len(w.ctx); n != 0 || err != nil {
			t.Errorf("before anything: %d, %v", n, err)
		}
		var ids []string
		for i := range 5 {
			id, err := a.Put(w.ctx, []byte{byte(i)})
			w.ok(err)
			ids = append(ids, id)
		}
		var items []*Item
		for i := range 5 {
			item, err := []*Queue{a, b}[i%2].Take(w.ctx)
			w.ok(err)
			if item.ID() != ids[i] || item.Data[0] != byte(i) {
				t.Errorf("item %d is %s, %v", i, item.ID(), item.Data)
			}
			items = append(items, item)
		}
		w.failOver()
		ctx, cancel := w.brief(time.Second)
		if _, err := b.Take(ctx); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("a sixth: %v", err)
		}
		cancel()
		w.ok(items[3].Abandon(w.ctx))
		w.ok(items[1].Abandon(w.ctx))
		for _, i := range []int{1, 3} {
			item, err := a.Take(w.ctx)
			w.ok(err)
			if item.ID() != ids[i] {
				t.Errorf("instead of item %d there is %s, %v", i, item.ID(), item.Data)
			}
			w.ok(item.Done(w.ctx))
			w.ok(item.Done(w.ctx))
			w.ok(item.Abandon(w.ctx))
		}
		if err := items[1].Done(w.ctx); !errors.Is(err, api.NotHeld) {
			t.Errorf("Done after Abandon: %v", err)
		}
		if n, err := b.Len(w.ctx); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// Who waits has the next item at once, whether it is new or given up, also after a fail-over; and one
// whose worker dies after lease and lock-delay, and then the first worker is refused.
func TestQueueWaits(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two, three := w.dial("h1"), w.dial("h2"), w.dial("h3")
		a, b := NewQueue(one, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay}), NewQueue(two, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay})
		got := make(chan *Item)
		take := func() {
			go func() {
				item, err := b.Take(w.ctx)
				if err != nil {
					t.Error(err)
				}
				got <- item
			}()
			pass(10 * time.Second)
			w.failOver()
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
			_, err := a.Put(w.ctx, []byte("new"))
			w.ok(err)
		})
		_, err := a.Put(w.ctx, []byte("given up"))
		w.ok(err)
		item, err := a.Take(w.ctx)
		w.ok(err)
		take()
		began("an item that is given up", time.Second, func() { w.ok(item.Abandon(w.ctx)) })
		_, err = a.Put(w.ctx, []byte("lost"))
		w.ok(err)
		item, err = a.Take(w.ctx)
		w.ok(err)
		take()
		cut := time.Now()
		next := began("an item whose worker died", api.DefaultLease+api.DefaultLockDelay+3*time.Second, func() {
			w.Cut("h1")
			<-item.Context().Done()
		})
		if took := time.Since(cut); took < api.DefaultLockDelay || next.ID() != item.ID() {
			t.Errorf("%s was taken from %s after %v", item.ID(), next.ID(), took)
		}
		if err := three.CheckSequencer(w.ctx, item.Sequencer().String()); !errors.Is(err, api.BadSequencer) {
			t.Errorf("the sequencer of who lost it: %v", err)
		}
		w.Heal("h1")
		if err := item.Done(w.ctx); !errors.Is(err, api.LockLost) && !errors.Is(err, api.SessionExpired) {
			t.Errorf("Done of who lost it: %v", err)
		}
		if err := next.Context().Err(); err != nil {
			t.Error(err)
		}
		w.ok(next.Done(w.ctx))
	})
}

// One whose lock was broken is refused, although its session lives.
func TestQueueDoneIsRefused(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		a, b := NewQueue(one, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay}), NewQueue(two, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay})
		_, err := a.Put(w.ctx, nil)
		w.ok(err)
		item, err := a.Take(w.ctx)
		w.ok(err)
		w.ok(two.BreakLock(w.ctx, item.Lock().Path(), "a test", true))
		next, err := b.Take(w.ctx)
		w.ok(err)
		if err := item.Done(w.ctx); !errors.Is(err, api.LockLost) {
			t.Errorf("Done of who lost it: %v", err)
		}
		w.ok(next.Done(w.ctx))
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
		s := newStorm(w, 1)
		books := &ledger{done: map[string]int{}}
		work := func(c *client.Client, r *rand.Rand) error {
			ctx, cancel := w.brief(time.Duration(r.IntN(60_000)) * time.Millisecond)
			defer cancel()
			item, err := NewQueue(c, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay}).Take(ctx)
			if err != nil {
				return err
			}
			s.hold(item.Context(), r, item.ID())
			if r.IntN(5) == 0 {
				return item.Abandon(ctx)
			}
			if err := item.Done(ctx); err != nil && !errors.Is(err, api.Uncertain) {
				return err
			}
			if err := item.Done(w.ctx); err != nil {
				return err
			}
			books.note(item.ID())
			return nil
		}
		for i := range workers {
			s.live(fmt.Sprintf("h%d", i), work)
		}
		for i := range 2 {
			s.live(fmt.Sprintf("p%d", i), func(c *client.Client, r *rand.Rand) error {
				ctx, cancel := w.brief(time.Duration(r.IntN(10_000)) * time.Millisecond)
				defer cancel()
				id, err := NewQueue(c, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay}).Put(ctx, []byte("x"))
				if err == nil {
					books.put(id)
				}
				pass(time.Duration(r.IntN(2_000)) * time.Millisecond)
				return err
			})
		}
		s.rage(time.Second)
		c, err := client.New(w.ctx, w.config("last"))
		w.ok(err)
		defer end(c)
		q := NewQueue(c, queueDir, QueueOptions{LockDelay: api.DefaultLockDelay})
		for n, err := q.Len(w.ctx); n > 0; n, err = q.Len(w.ctx) {
			w.ok(err)
			item, err := q.Take(w.ctx)
			w.ok(err)
			w.ok(item.Done(w.ctx))
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
