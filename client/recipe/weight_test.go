//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

// A permit of several slots is of all or none, has its turn as any other, and ends with the first slot that is lost.
func TestSemaphoreOfWeight(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		a, b := NewSemaphore(one, semDir, 4), NewSemaphore(two, semDir, 4)
		var small []*Permit
		for range 2 {
			p, err := a.Acquire(w.Ctx, SemaphoreOptions{})
			w.OK(err)
			small = append(small, p)
		}
		var e *api.Error
		if _, err := b.TryAcquire(w.Ctx, SemaphoreOptions{Weight: 3}); !errors.As(err, &e) || e.Code != api.LockHeld || len(e.Holders) != 2 {
			t.Errorf("three of two: %v", err)
		}
		p, err := b.TryAcquire(w.Ctx, SemaphoreOptions{Weight: 2}) // nothing is left of the one before
		w.OK(err)
		if got := slices.Sorted(slices.Values(append(p.Slots(), small[0].Slot(), small[1].Slot()))); fmt.Sprint(got) != "[0 1 2 3]" || p.Slot() != p.Slots()[0] || len(p.Locks()) != 2 {
			t.Errorf("the slots are %v", got)
		}
		var mu sync.Mutex
		var order []string
		var waits sync.WaitGroup
		wait := func(s *Semaphore, name string, weight int) {
			waits.Go(func() {
				p, err := s.Acquire(w.Ctx, SemaphoreOptions{Weight: weight})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				pass(time.Second)
				if err := p.Release(w.Ctx); err != nil {
					t.Error(err)
				}
			})
			pass(time.Second)
		}
		wait(a, "all", 4)
		wait(b, "one", 1)
		w.OK(small[0].Release(w.Ctx))
		pass(10 * time.Second) // the slot that is free is for the one that came first
		w.OK(p.Release(w.Ctx))
		pass(10 * time.Second)
		w.OK(small[1].Release(w.Ctx))
		waits.Wait()
		if fmt.Sprint(order) != "[all one]" {
			t.Errorf("the order is %v", order)
		}
		for _, weight := range []int{-1, 5} {
			if _, err := a.Acquire(w.Ctx, SemaphoreOptions{Weight: weight}); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("a weight of %d: %v", weight, err)
			}
		}
		p, err = a.Acquire(w.Ctx, SemaphoreOptions{Weight: 4})
		w.OK(err)
		ctx, cancel := w.Brief(time.Second)
		defer cancel()
		if _, err := b.Acquire(ctx, SemaphoreOptions{Weight: 2}); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("until the deadline: %v", err)
		}
		w.OK(two.BreakLock(w.Ctx, semDir+"/"+slotName(2), "a test", false))
		began := time.Now()
		w.Ends(p)
		if err, took := p.Err(), time.Since(began); !errors.Is(err, api.LockLost) || took > time.Second {
			t.Errorf("one of four was taken away: %v, after %v", err, took)
		}
		if err := p.Release(w.Ctx); !errors.Is(err, api.LockLost) {
			t.Errorf("released: %v", err)
		}
		_, err = b.TryAcquire(w.Ctx, SemaphoreOptions{Weight: 4})
		w.OK(err)
		w.Lives(one)
	})
}

// Who has some slots, and loses his turn, does not wait with them for who has the others.
func TestSemaphoreOfWeightLosesItsTurn(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		theirs, err := two.Acquire(w.Ctx, semDir+"/"+slotName(1)) // there is no such directory yet
		if err == nil {
			t.Fatal(theirs)
		}
		w.Mkdir(two, semDir)
		theirs, err = two.Acquire(w.Ctx, semDir+"/"+slotName(1))
		w.OK(err)
		had := make(chan *Permit)
		go func() {
			p, err := NewSemaphore(one, semDir, 2).Acquire(w.Ctx, SemaphoreOptions{Weight: 2})
			if err != nil {
				t.Error(err)
			}
			had <- p
		}()
		pass(time.Second)
		w.OK(two.BreakLock(w.Ctx, semDir+"/"+turnstileName, "a test", false))
		ctx, cancel := w.Brief(time.Minute)
		defer cancel()
		// One who was let through as well.
		other, err := two.Acquire(ctx, semDir+"/"+slotName(0))
		w.OK(err)
		w.OK(other.Release(w.Ctx))
		w.OK(theirs.Release(w.Ctx))
		w.OK((<-had).Release(w.Ctx))
		w.Lives(one)
	})
}

// A slot that is taken away while others are waited for is let go of at once, and had again.
func TestSemaphoreOfWeightLosesASlot(t *testing.T) {
	t.Parallel()
	for _, free := range []bool{true, false} {
		inSmallWorld(t, func(w *world) {
			one, two := w.Client("h1"), w.Client("h2")
			sem := NewSemaphore(two, semDir, 2)
			p, err := sem.Acquire(w.Ctx, SemaphoreOptions{})
			w.OK(err)
			var other *Permit
			if !free {
				other, err = sem.Acquire(w.Ctx, SemaphoreOptions{})
				w.OK(err)
			}
			had := make(chan *Permit)
			go func() {
				p, err := NewSemaphore(one, semDir, 2).Acquire(w.Ctx, SemaphoreOptions{Weight: 2})
				if err != nil {
					t.Error(err)
				}
				had <- p
			}()
			pass(time.Second)
			if !free {
				w.OK(other.Release(w.Ctx))
				pass(time.Second)
			}
			w.OK(two.BreakLock(w.Ctx, semDir+"/"+slotName(1-p.Slot()), "a test", false))
			pass(time.Second) // well before the end of the lease, which is not extended as long as it is not let go of
			x, err := two.Cell().Explain(w.Ctx, semDir+"/"+slotName(1-p.Slot()))
			w.OK(err)
			if x.Lock.Revoked != "" || len(x.Lock.Holders) != 1 {
				t.Errorf("the slot was taken away, and is %+v", x.Lock)
			}
			w.Lives(one)
			w.OK(p.Release(w.Ctx))
			w.OK((<-had).Release(w.Ctx))
		})
	}
}

// No slot is two holders', and nobody waits for ever, however many slots each wants.
func TestSemaphoreOfWeightRandom(t *testing.T) {
	t.Parallel()
	const n, clients = 4, 6
	inWorld(t, func(w *world) {
		s := recipetest.NewStorm(w.World, 1, *rounds)
		for i := range clients {
			s.Live(fmt.Sprintf("h%d", i), func(c *client.Client, r *rand.Rand) error {
				ctx, cancel := w.Brief(10 * time.Minute)
				defer cancel()
				sem := NewSemaphore(c, semDir, n)
				acquire := sem.Acquire
				if r.IntN(4) == 0 {
					acquire = sem.TryAcquire
				}
				p, err := acquire(ctx, SemaphoreOptions{LockDelay: api.DefaultLockDelay, Weight: 1 + r.IntN(n)})
				if errors.Is(err, api.DeadlineExceeded) {
					t.Error("it waited for ever")
				}
				if err != nil {
					return err
				}
				holdAll(s, p, r)
				return p.Release(context.WithoutCancel(ctx))
			})
		}
		s.Rage(0, *rounds/4)
	})
}

// holdAll notes that the slots of a permit are held for some time, or until its context ends.
func holdAll(s *recipetest.Storm, p *Permit, r *rand.Rand) {
	if p.Context().Err() != nil {
		return
	}
	for _, slot := range p.Slots() {
		defer s.Model.Begin(slotName(slot), 1)()
	}
	select {
	case <-p.Done():
	case <-time.After(time.Duration(r.IntN(3_000)) * time.Millisecond):
	}
}
