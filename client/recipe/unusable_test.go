//go:build linux

package recipe

import (
	"errors"
	"slices"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// spoil puts something that others cannot use into a recipe's place: a directory, and a
// file that only the stranger may open.
func (w *world) spoil(directory, file string) {
	w.t.Helper()
	stranger := w.dial("stranger")
	w.mkdir(stranger, directory)
	w.put(stranger, "/ls/local/acl/strangers", "stranger\n")
	h, err := stranger.Open(w.ctx, file, client.OpenOptions{Write: true, Create: client.NewFile,
		ACL: api.ACL{Read: "strangers", Write: "strangers", Change: "strangers"}})
	w.ok(err)
	w.ok(h.Close(w.ctx))
}

// What cannot be used as an item is passed over, told once in each Take, and holds up
// nobody, although it came first.
func TestQueuePassesOverWhatItCannotUse(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		var told []string
		q := NewQueue(w.dial("h1"), "/ls/local/q", QueueOptions{OnUnusable: func(id string, err error) {
			if !errors.Is(err, api.PermissionDenied) {
				t.Errorf("told of %s: %v", id, err)
			}
			told = append(told, id)
		}})
		w.mkdir(w.dial("h2"), "/ls/local/q")
		w.spoil("/ls/local/q/item-directory", "/ls/local/q/item-secret")
		for i := range 3 {
			id, err := q.Put(w.ctx, nil)
			w.ok(err)
			ctx, cancel := w.brief(2 * verify)
			item, err := q.Take(ctx)
			cancel()
			w.ok(err)
			if item.ID() != id || len(told) != i+1 {
				t.Errorf("took %s, want %s; told %v", item.ID(), id, told)
			}
			w.ok(item.Done(w.ctx))
		}
		if slices.Sort(told); len(slices.Compact(told)) != 1 {
			t.Errorf("told %v", told)
		}
		if n, err := q.Len(w.ctx); err != nil || n != 1 {
			t.Errorf("%d items, %v; want the file alone", n, err)
		}
		told = nil
		ctx, cancel := w.brief(4 * verify)
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
		q := NewQueue(w.dial("h1"), "/ls/local/q", QueueOptions{})
		w.mkdir(w.dial("h2"), "/ls/local/q")
		w.spoil("/ls/local/q/item-directory", "/ls/local/q/item-secret")
		taken := make(chan error, 1)
		go func() {
			item, err := q.Take(w.ctx)
			if err == nil {
				err = item.Done(w.ctx)
			}
			taken <- err
		}()
		pass(verify / 2)
		w.put(w.dial("stranger"), "/ls/local/acl/strangers", "stranger\nh1\n")
		w.ok(<-taken)
	})
}

// A slot whose place something else has taken is a slot less, and no more than that.
func TestSemaphorePassesOverSpoiltSlots(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		s := NewSemaphore(w.dial("h1"), "/ls/local/s", 3)
		w.mkdir(w.dial("h2"), "/ls/local/s")
		w.spoil("/ls/local/s/"+slotName(0), "/ls/local/s/"+slotName(1))
		for range 5 {
			p, err := s.Acquire(w.ctx, SemaphoreOptions{})
			w.ok(err)
			if p.Slot() != 2 {
				t.Errorf("slot %d", p.Slot())
			}
			if _, err := s.TryAcquire(w.ctx, SemaphoreOptions{}); !errors.Is(err, api.LockHeld) {
				t.Errorf("when the other is held: %v", err)
			}
			next := make(chan error, 1)
			go func() {
				p, err := s.Acquire(w.ctx, SemaphoreOptions{})
				if err == nil {
					err = p.Release(w.ctx)
				}
				next <- err
			}()
			pass(verify)
			w.ok(p.Release(w.ctx))
			w.ok(<-next)
		}
	})
}

// Each item that cannot be used is told of, although all that is known of them is their names.
func TestQueueTellsOfEachItemThatItCannotUse(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		var told []string
		q := NewQueue(w.dial("h1"), "/ls/local/q", QueueOptions{OnUnusable: func(id string, _ error) { told = append(told, id) }})
		w.mkdir(w.dial("h2"), "/ls/local/q")
		w.spoil("/ls/local/q/item-directory", "/ls/local/q/item-secret")
		w.spoil("/ls/local/q/item-directory", "/ls/local/q/item-veiled")
		ctx, cancel := w.brief(2 * verify)
		defer cancel()
		if _, err := q.Take(ctx); !errors.Is(err, api.DeadlineExceeded) {
			t.Error(err)
		}
		if slices.Sort(told); !slices.Equal(told, []string{"secret", "veiled"}) {
			t.Errorf("told of %v", told)
		}
	})
}
