//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// A semaphore is not made smaller, either, if a vacated slot is taken away while the new size waits for somebody's
// cache; and who wanted it lets go of the slot at once, and keeps its session.
func TestVacatedSlotIsBrokenBeforeTheSizeIsWritten(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		inSmallWorld(t, func(w *world) {
			one, two, cacher, operator := w.Client("h1"), w.Client("h2"), w.Client("cacher"), w.Client("operator")
			sem := w.semaphore(2, one, cacher)
			w.Cut("cacher")
			resized := make(chan error, 1)
			go func() { resized <- ResizeSemaphore(w.Ctx, two, semDir, 1) }()
			pass(2 * time.Second)
			w.OK(operator.BreakLock(w.Ctx, semDir+"/"+slotName(1), "a test", now))
			pass(time.Second)
			second := ok(sem.TryAcquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay}))(w)
			if err := <-resized; !errors.Is(err, api.LockLost) {
				t.Errorf("break --now %t: resized: %v", now, err)
			}
			w.Lives(two)
			if size := w.Cat(operator, semDir+"/"+hold.TurnstileName); size != "2" {
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
			one, cacher, operator := w.Client("h1"), w.Client("cacher"), w.Client("operator")
			two := w.Client("h2", func(cfg *client.Config) { cfg.Lease = api.MaxLease })
			sem := w.semaphore(3, one, cacher)
			w.Cut("cacher")
			resized := make(chan error, 1)
			go func() { resized <- ResizeSemaphore(w.Ctx, two, semDir, 1) }()
			pass(2 * time.Second)
			w.Cut("h2")
			w.OK(operator.BreakLock(w.Ctx, semDir+"/"+slotName(broken), "a test", true))
			p := ok(sem.TryAcquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay}))(w)
			if p.Slot() != broken {
				t.Errorf("slot %d", p.Slot())
			}
			w.Heal("cacher") // so that the write waits for nobody any more
			pass(5 * time.Second)
			w.Heal("h2")
			if err := <-resized; !errors.Is(err, api.LockLost) {
				t.Errorf("slot %d is broken: resized: %v", broken, err)
			}
			if size := w.Cat(operator, semDir+"/"+hold.TurnstileName); size != "3" && (size != "2" || broken == 2) || p.Context().Err() != nil {
				t.Errorf("slot %d is broken: the size is %s, and the permit: %v", broken, size, p.Context().Err())
			}
		})
	}
}

// semaphore makes one of which one holds slot 0, and the others are free, and that the cacher has read.
func (w *world) semaphore(n int, one, cacher *client.Client) *Semaphore {
	w.T.Helper()
	sem, permits := NewSemaphore(one, semDir, n), map[int]*Permit{}
	for range n {
		p := ok(sem.Acquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay}))(w)
		permits[p.Slot()] = p
	}
	if _, err := NewSemaphore(cacher, semDir, n).TryAcquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay}); !errors.Is(err, api.LockHeld) {
		w.T.Fatal(err)
	}
	for slot := 1; slot < n; slot++ {
		w.OK(permits[slot].Release(w.Ctx))
	}
	return sem
}

// A semaphore is not made smaller on the strength of a slot that was taken away again, and who wants it
// keeps its session.
func TestVacatedSlotIsBroken(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		inSmallWorld(t, func(w *world) {
			one, two, operator := w.Client("h1"), w.Client("h2"), w.Client("operator")
			sem := NewSemaphore(one, semDir, 3)
			permits := map[int]*Permit{}
			for range 3 {
				p := ok(sem.Acquire(w.Ctx, SemaphoreOptions{}))(w)
				permits[p.Slot()] = p
			}
			w.OK(permits[1].Release(w.Ctx)) // it is vacated, and slot 2 is waited for
			resized := make(chan error, 1)
			go func() { resized <- ResizeSemaphore(w.Ctx, two, semDir, 1) }()
			pass(time.Second)
			w.OK(operator.BreakLock(w.Ctx, semDir+"/"+slotName(1), "a test", now))
			pass(time.Second)
			p := ok(sem.TryAcquire(w.Ctx, SemaphoreOptions{}))(w)
			if p.Slot() != 1 {
				t.Errorf("slot %d", p.Slot())
			}
			w.OK(permits[2].Release(w.Ctx))
			if err := <-resized; !errors.Is(err, api.LockLost) || !strings.Contains(err.Error(), "vacated") {
				t.Errorf("resized: %v", err)
			}
			if size := w.Cat(operator, semDir+"/"+hold.TurnstileName); size != "3" || p.Context().Err() != nil {
				t.Errorf("the size is %s, and the slot: %v", size, p.Lock().Err())
			}
			w.Lives(two)
		})
	}
}

// A slot whose place something else has taken is a slot less, and no more than that.
func TestSemaphorePassesOverSpoiltSlots(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		s := NewSemaphore(w.Client("h1"), "/ls/local/s", 3)
		w.Mkdir(w.Client("h2"), "/ls/local/s")
		w.Spoil("/ls/local/s/"+slotName(0), "/ls/local/s/"+slotName(1))
		for range 5 {
			p := ok(s.Acquire(w.Ctx, SemaphoreOptions{}))(w)
			if p.Slot() != 2 {
				t.Errorf("slot %d", p.Slot())
			}
			wants(t, "when the other is held", second(s.TryAcquire(w.Ctx, SemaphoreOptions{})), api.LockHeld)
			next := make(chan error, 1)
			go func() {
				p, err := s.Acquire(w.Ctx, SemaphoreOptions{})
				if err == nil {
					err = p.Release(w.Ctx)
				}
				next <- err
			}()
			pass(verify)
			w.OK(p.Release(w.Ctx))
			w.OK(<-next)
		}
	})
}

// Semaphores of one client that wait for more slots than a session has places in queues
// find each slot that becomes free.
func TestSemaphoresOfOneClient(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const semaphores, slots = 20, 10
		holder, c := w.Client("holder"), w.Client("c")
		var held []*Permit
		for i := range semaphores {
			s := NewSemaphore(holder, fmt.Sprintf("/ls/local/s%02d", i), slots)
			for range slots {
				p := ok(s.Acquire(w.Ctx, SemaphoreOptions{}))(w)
				held = append(held, p)
			}
		}
		ctx, cancel := context.WithCancel(w.Ctx)
		had, done := make(chan int, semaphores), make(chan struct{}, semaphores)
		for i := range semaphores {
			go func() {
				defer func() { done <- struct{}{} }()
				p, err := NewSemaphore(c, fmt.Sprintf("/ls/local/s%02d", i), slots).Acquire(ctx, SemaphoreOptions{})
				if err == nil {
					had <- i
					_ = p.Release(w.Ctx)
				}
			}()
		}
		pass(time.Minute)
		for i := range semaphores {
			w.OK(held[i*slots+i%slots].Release(w.Ctx))
		}
		pass(time.Minute)
		if len(had) != semaphores {
			t.Errorf("of %d semaphores with a free slot %d were had", semaphores, len(had))
		}
		cancel()
		for range semaphores {
			<-done
		}
	})
}

// census knows who holds which slot, and the size that a resize has come to.
type census struct {
	mu   sync.Mutex // guards what follows
	held map[*Permit]bool
	size int // 0 while it is not known
}

// note takes note of a change, and checks that nobody holds a slot that is not below the size.
func (c *census) note(t *testing.T, change func()) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	for p := range c.held {
		if c.size > 0 && p.Slot() >= c.size && p.Err() == nil {
			t.Errorf("slot %d is held, of a semaphore of %d", p.Slot(), c.size)
		}
	}
}

// No more permits are out than the size allows, although clients die, give up and take over while
// it is changed.
func TestSemaphoreResizeRandom(t *testing.T) {
	t.Parallel()
	const most = 4
	inWorld(t, func(w *world) {
		s := recipetest.NewStorm(w.World, most, *rounds)
		all := &census{held: map[*Permit]bool{}}
		for _, host := range []string{"a", "b", "c", "d", "e", "f"} {
			s.Live(host, func(c *client.Client, r *rand.Rand) error {
				ctx := w.brief(time.Duration(r.IntN(20_000)) * time.Millisecond)
				sem := NewSemaphore(c, semDir, 1+r.IntN(most))
				acquire := sem.Acquire
				if r.IntN(2) == 0 {
					acquire = sem.TryAcquire
				}
				p, err := acquire(ctx, SemaphoreOptions{})
				if err != nil {
					return err
				}
				all.note(t, func() { all.held[p] = true })
				s.Hold(p.Context(), r, "the semaphore", 1)
				all.note(t, func() {})
				all.note(t, func() { delete(all.held, p) })
				return p.Release(context.WithoutCancel(ctx))
			})
		}
		s.Live("resizer", func(c *client.Client, r *rand.Rand) error {
			ctx := w.brief(time.Duration(r.IntN(60_000)) * time.Millisecond)
			n := 1 + r.IntN(most)
			all.note(t, func() { all.size = 0 })
			if err := ResizeSemaphore(ctx, c, semDir, n); err != nil {
				return err
			}
			all.note(t, func() { all.size = n })
			pass(time.Duration(r.IntN(5_000)) * time.Millisecond)
			return nil
		})
		s.Rage(0, 0)
	})
}
