//go:build linux

package recipes

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// What cannot be used as an item is passed over, told once in each Take, and holds up
// nobody, although it came first.
func TestQueuePassesOverWhatItCannotUse(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		var told []string
		q := NewQueue(w.Client("h1"), "/ls/local/q", QueueOptions{OnUnusable: func(id string, err error) {
			if !errors.Is(err, api.PermissionDenied) {
				t.Errorf("told of %s: %v", id, err)
			}
			told = append(told, id)
		}})
		w.Mkdir(w.Client("h2"), "/ls/local/q")
		w.Spoil("/ls/local/q/item-directory", "/ls/local/q/item-secret")
		for i := range 3 {
			id, err := q.Put(w.Ctx, nil)
			w.OK(err)
			ctx, cancel := w.Brief(2 * verify)
			item, err := q.Take(ctx)
			cancel()
			w.OK(err)
			if item.ID() != id || len(told) != i+1 {
				t.Errorf("took %s, want %s; told %v", item.ID(), id, told)
			}
			w.OK(item.Done(w.Ctx))
		}
		if slices.Sort(told); len(slices.Compact(told)) != 1 {
			t.Errorf("told %v", told)
		}
		if n, err := q.Len(w.Ctx); err != nil || n != 1 {
			t.Errorf("%d items, %v; want the file alone", n, err)
		}
		told = nil
		ctx, cancel := w.Brief(4 * verify)
		defer cancel()
		if _, err := q.Take(ctx); !errors.Is(err, api.DeadlineExceeded) || len(told) != 1 {
			t.Errorf("with nothing that can be used: %v; told %v", err, told)
		}
	})
}

// An item that could not be used is taken once it can.
func TestQueueTriesAgainWhatItCouldNotUse(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		q := NewQueue(w.Client("h1"), "/ls/local/q", QueueOptions{})
		w.Mkdir(w.Client("h2"), "/ls/local/q")
		w.Spoil("/ls/local/q/item-directory", "/ls/local/q/item-secret")
		taken := make(chan error, 1)
		go func() {
			item, err := q.Take(w.Ctx)
			if err == nil {
				err = item.Done(w.Ctx)
			}
			taken <- err
		}()
		pass(verify / 2)
		w.Put(w.Client("stranger"), "/ls/local/acl/strangers", "stranger\nh1\n")
		w.OK(<-taken)
	})
}

// Each item that cannot be used is told of, although all that is known of them is their names.
func TestQueueTellsOfEachItemThatItCannotUse(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		var told []string
		q := NewQueue(w.Client("h1"), "/ls/local/q", QueueOptions{OnUnusable: func(id string, _ error) { told = append(told, id) }})
		w.Mkdir(w.Client("h2"), "/ls/local/q")
		w.Spoil("/ls/local/q/item-directory", "/ls/local/q/item-secret")
		w.Spoil("/ls/local/q/item-directory", "/ls/local/q/item-veiled")
		ctx, cancel := w.Brief(2 * verify)
		defer cancel()
		if _, err := q.Take(ctx); !errors.Is(err, api.DeadlineExceeded) {
			t.Error(err)
		}
		if slices.Sort(told); !slices.Equal(told, []string{"secret", "veiled"}) {
			t.Errorf("told of %v", told)
		}
	})
}

// An item whose worker died while a stranger was in its lock's queue is taken, although the stranger gives
// up, of which nobody is told.
func TestQueueWithStranger(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const delay = 30 * time.Second
		one, two, stranger := w.Client("h1"), w.Client("h2"), w.Client("stranger")
		a, b := NewQueue(one, queueDir, QueueOptions{LockDelay: delay}), NewQueue(two, queueDir, QueueOptions{LockDelay: delay})
		_, err := a.Put(w.Ctx, nil)
		w.OK(err)
		item, err := a.Take(w.Ctx)
		w.OK(err)
		h, err := stranger.Open(w.Ctx, item.Lock().Path(), client.OpenOptions{Write: true})
		w.OK(err)
		waiting, giveUp := context.WithCancel(w.Ctx)
		waited := make(chan error, 1)
		go func() {
			_, err := h.Acquire(waiting, api.Exclusive)
			waited <- err
		}()
		pass(time.Second)
		took := make(chan error, 1)
		go func() {
			_, err := b.Take(w.Ctx)
			took <- err
		}()
		pass(time.Second)
		w.Expire(one.Session())
		pass(20 * time.Second) // the lock-delay
		giveUp()
		if err := <-waited; err == nil {
			t.Fatal("the stranger has it")
		}
		select {
		case err := <-took:
			w.OK(err)
		case <-time.After(delay):
			t.Error("nobody has taken the item")
		}
	})
}
