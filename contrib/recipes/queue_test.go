//go:build linux

package recipes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client/recipe"
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

// Who has lost an item cannot end its work on it, although its session lives: another's try goes on, and counts.
func TestQueueRefusesWhoLostAnItem(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Item, context.Context) error{
		"Done": (*Item).Done, "Return": (*Item).Return, "Fail": func(i *Item, ctx context.Context) error { return i.Fail(ctx, "too late", 0) },
	} {
		inSmallWorld(t, func(w *world) {
			one, two := w.Client("h1"), w.Client("h2")
			o := QueueOptions{LockDelay: recipe.NoLockDelay, Attempts: 2}
			a, b := NewQueue(one, queueDir, o), NewQueue(two, queueDir, o)
			_, err := a.Put(w.Ctx, nil)
			w.OK(err)
			item, err := a.Take(w.Ctx)
			w.OK(err)
			w.OK(two.BreakLock(w.Ctx, item.Path(), "a test", true))
			next, err := b.Take(w.Ctx)
			w.OK(err)
			if err := end(item, w.Ctx); !errors.Is(err, api.LockLost) {
				t.Errorf("%s of who lost it: %v", name, err)
			}
			list, err := b.List(w.Ctx)
			if err != nil || len(list) != 1 || list[0].Attempts != 2 || list[0].Reason != "" || len(list[0].Holders) != 1 {
				t.Errorf("after %s: %+v, %v", name, list, err)
			}
			w.OK(next.Done(w.Ctx))
		})
	}
}
