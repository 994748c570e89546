//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

const semDir = "/ls/local/sem"

// All slots are taken, then one waits, in order; slots have different numbers; the size is one.
func TestSemaphore(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		a, b := NewSemaphore(one, semDir, 2), NewSemaphore(two, semDir, 2)
		first := ok(a.Acquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay, Reason: "first"}))(w)
		second := ok(b.TryAcquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay, Reason: "second"}))(w)
		if first.Slot() == second.Slot() || first.Slot()+second.Slot() != 1 {
			t.Errorf("slots %d and %d", first.Slot(), second.Slot())
		}
		_, err := a.TryAcquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay})
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.LockHeld || len(e.Holders) != 2 {
			t.Errorf("a third: %v", err)
		}
		ctx := w.brief(time.Second)
		if p, err := b.Acquire(ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay}); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("Acquire until the deadline: %v, %v", p, err)
		}
		var order []int
		var waits sync.WaitGroup
		for i := range 4 {
			sem := []*Semaphore{a, b}[i%2]
			waits.Go(func() {
				p, err := sem.Acquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay})
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				pass(time.Second)
				if err := p.Release(w.Ctx); err != nil {
					t.Error(err)
				}
			})
			pass(time.Second)
		}
		w.Succeed()
		pass(10 * time.Second)
		if len(order) > 0 {
			t.Errorf("%v were let in", order)
		}
		// One waits for the slots, and the others for him.
		locks := ok(one.Cell().Locks(w.Ctx, semDir))(w)
		for _, l := range locks {
			want := map[bool]int{true: 3, false: 1}[strings.HasSuffix(l.Path, hold.TurnstileName)]
			if len(l.Waiters) != want {
				t.Errorf("%d wait for %s; want %d", len(l.Waiters), l.Path, want)
			}
			if l.Path == semDir+"/"+slotName(first.Slot()) && l.Holders[0].Reason != "first" {
				t.Errorf("%s is held by %+v", l.Path, l.Holders)
			}
		}
		w.OK(first.Release(w.Ctx))
		waits.Wait()
		if fmt.Sprint(order) != "[0 1 2 3]" {
			t.Errorf("the order is %v", order)
		}
		if second.Context().Err() != nil {
			t.Error(context.Cause(second.Context()))
		}
		w.OK(second.Release(w.Ctx))
		if _, err := NewSemaphore(one, semDir, 3).Acquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay}); !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "made for 3, and the directory says 2") {
			t.Errorf("another size: %v", err)
		}
	})
}

// More wait in one process than a session may have requests under way.
func TestSemaphoreOfMany(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		sem := NewSemaphore(w.Client("h1"), semDir, 2)
		model := recipetest.NewClaims(2)
		const many = api.MaxOutstanding + 10
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				p, err := sem.Acquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay})
				if err != nil {
					t.Error(err)
					return
				}
				end := model.Begin("the semaphore", 1)
				runtime.Gosched()
				end()
				_ = p.Release(w.Ctx)
			})
		}
		all.Wait()
		model.Check(t, many)
	})
}

// The slot of one who dies is free after lease and lock-delay, not before, and he knows first.
func TestSemaphoreHolderDies(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		p := ok(NewSemaphore(one, semDir, 1).Acquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay}))(w)
		got := make(chan time.Time)
		go func() {
			if _, err := NewSemaphore(two, semDir, 1).Acquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay}); err != nil {
				t.Error(err)
			}
			got <- time.Now()
		}()
		pass(time.Second)
		w.Cut("h1")
		cut := time.Now()
		<-p.Context().Done()
		lost := time.Now()
		at := <-got
		if wait := at.Sub(cut); !lost.Before(at) || wait < api.DefaultLockDelay || wait > api.DefaultLease+api.DefaultLockDelay+3*time.Second {
			t.Errorf("had %v after the cut, %v after the end of the context", wait, at.Sub(lost))
		}
	})
}

// The size is changed under those who use the semaphore: who holds a slot that is to go is waited for.
func TestSemaphoreResize(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		old := NewSemaphore(c, semDir, 3)
		var permits []*Permit
		for range 3 {
			p := ok(old.Acquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay}))(w)
			permits = append(permits, p)
		}
		slices.SortFunc(permits, func(a, b *Permit) int { return a.Slot() - b.Slot() })
		resized := make(chan error, 1)
		go func() { resized <- ResizeSemaphore(w.Ctx, c, semDir, 1) }()
		pass(time.Second)
		stuck := make(chan error, 1)
		go func() {
			_, err := old.Acquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay})
			stuck <- err
		}()
		for _, p := range permits {
			select {
			case err := <-resized:
				t.Fatalf("resized too early: %v", err)
			case <-time.After(time.Second):
			}
			if p.Slot() > 0 {
				w.OK(p.Release(w.Ctx))
			}
		}
		w.OK(<-resized)
		wants(t, "one of the former size", <-stuck, api.InvalidArgument)
		now := NewSemaphore(c, semDir, 1)
		wants(t, "the slot that remains", second(now.TryAcquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay})), api.LockHeld)
		w.OK(ResizeSemaphore(w.Ctx, c, semDir, 2))
		if p, err := NewSemaphore(c, semDir, 2).TryAcquire(w.Ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay}); err != nil || p.Slot() != 1 {
			t.Errorf("the slot that is new: %v, %v", p, err)
		}
	})
}

// There are never more than n, whoever dies, gives up or takes over.
func TestSemaphoreRandom(t *testing.T) {
	t.Parallel()
	const n, clients = 3, 7
	inWorld(t, func(w *world) {
		s := recipetest.NewStorm(w.World, n, *rounds)
		for i := range clients {
			s.Live(fmt.Sprintf("h%d", i), func(c *client.Client, r *rand.Rand) error {
				ctx := w.brief(time.Duration(r.IntN(60_000)) * time.Millisecond)
				sem := NewSemaphore(c, semDir, n)
				acquire := sem.Acquire
				if r.IntN(4) == 0 {
					acquire = sem.TryAcquire
				}
				p, err := acquire(ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay})
				if err != nil {
					return err
				}
				s.Hold(p.Context(), r, "the semaphore", 1)
				return p.Release(ctx)
			})
		}
		s.Rage(0, *rounds/4)
	})
}
