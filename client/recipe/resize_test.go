//go:build linux

package recipe

import (
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A semaphore is not made smaller, either, if a vacated slot is taken away while the new size waits for somebody's
// cache; and who wanted it lets go of the slot at once, and keeps its session.
func TestVacatedSlotIsBrokenBeforeTheSizeIsWritten(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		inSmallWorld(t, func(w *world) {
			one, two, cacher, operator := w.dial("h1"), w.dial("h2"), w.dial("cacher"), w.dial("operator")
			sem := w.semaphore(2, one, cacher)
			w.Cut("cacher")
			resized := make(chan error, 1)
			go func() { resized <- ResizeSemaphore(w.ctx, two, semDir, 1) }()
			pass(2 * time.Second)
			w.ok(operator.BreakLock(w.ctx, semDir+"/"+slotName(1), "a test", now))
			pass(time.Second)
			second, err := sem.TryAcquire(w.ctx, SemaphoreOptions{LockDelay: NoLockDelay})
			w.ok(err)
			if err := <-resized; !errors.Is(err, api.LockLost) {
				t.Errorf("break --now %t: resized: %v", now, err)
			}
			w.lives(two)
			if size := w.cat(operator, semDir+"/"+turnstileName); size != "2" {
				t.Errorf("break --now %t: the size is %s, and the permit: %v", now, size, second.Context().Err())
			}
		})
	}
}

// The new size is not written, either, if nothing has been heard yet of the loss of a slot.
func TestVacatedSlotIsBrokenUnheard(t *testing.T) {
	t.Parallel()
	for broken := 1; broken <= 2; broken++ {
		inSmallWorld(t, func(w *world) {
			one, cacher, operator := w.dial("h1"), w.dial("cacher"), w.dial("operator")
			cfg := w.config("h2")
			cfg.Lease = api.MaxLease
			two, err := client.New(w.ctx, cfg)
			w.ok(err)
			w.t.Cleanup(func() { end(two) })
			sem := w.semaphore(3, one, cacher)
			w.Cut("cacher")
			resized := make(chan error, 1)
			go func() { resized <- ResizeSemaphore(w.ctx, two, semDir, 1) }()
			pass(2 * time.Second)
			w.Cut("h2")
			w.ok(operator.BreakLock(w.ctx, semDir+"/"+slotName(broken), "a test", true))
			p, err := sem.TryAcquire(w.ctx, SemaphoreOptions{LockDelay: NoLockDelay})
			w.ok(err)
			if p.Slot() != broken {
				t.Errorf("slot %d", p.Slot())
			}
			w.Heal("cacher") // so that the write waits for nobody any more
			pass(5 * time.Second)
			w.Heal("h2")
			if err := <-resized; !errors.Is(err, api.LockLost) {
				t.Errorf("slot %d is broken: resized: %v", broken, err)
			}
			if size := w.cat(operator, semDir+"/"+turnstileName); size != "3" && (size != "2" || broken == 2) || p.Context().Err() != nil {
				t.Errorf("slot %d is broken: the size is %s, and the permit: %v", broken, size, p.Context().Err())
			}
		})
	}
}

// semaphore makes one of which one holds slot 0, and the others are free, and that the cacher has read.
func (w *world) semaphore(n int, one, cacher *client.Client) *Semaphore {
	w.t.Helper()
	sem, permits := NewSemaphore(one, semDir, n), map[int]*Permit{}
	for range n {
		p, err := sem.Acquire(w.ctx, SemaphoreOptions{LockDelay: NoLockDelay})
		w.ok(err)
		permits[p.Slot()] = p
	}
	if _, err := NewSemaphore(cacher, semDir, n).TryAcquire(w.ctx, SemaphoreOptions{LockDelay: NoLockDelay}); !errors.Is(err, api.LockHeld) {
		w.t.Fatal(err)
	}
	for slot := 1; slot < n; slot++ {
		w.ok(permits[slot].Release(w.ctx))
	}
	return sem
}
