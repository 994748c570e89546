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
	"github.com/chubbylock/chubby/client"
)

// A permit of several slots is of all or none, has its turn as any other, and ends with the first slot that is lost.
func TestSemaphoreOfWeight(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		a, b := NewSemaphore(one, semDir, 4), NewSemaphore(two, semDir, 4)
		var small []*Permit
		for range 2 {
			p, err := a.Acquire(w.ctx, SemaphoreOptions{})
			w.ok(err)
			small = append(small, p)
		}
		var e *api.Error
		if _, err := b.TryAcquire(w.ctx, SemaphoreOptions{Weight: 3}); !errors.As(err, &e) || e.Code != api.LockHeld || len(e.Holders) != 2 {
			t.Errorf("three of two: %v", err)
		}
		p, err := b.TryAcquire(w.ctx, SemaphoreOptions{Weight: 2}) // nothing is left of the one before
		w.ok(err)
		if got := slices.Sorted(slices.Values(append(p.Slots(), small[0].Slot(), small[1].Slot()))); fmt.Sprint(got) != "[0 1 2 3]" || p.Slot() != p.Slots()[0] || len(p.Locks()) != 2 {
			t.Errorf("the slots are %v", got)
		}
		var mu sync.Mutex
		var order []string
		var waits sync.WaitGroup
		wait := func(s *Semaphore, name string, weight int) {
			waits.Go(func() {
				p, err := s.Acquire(w.ctx, SemaphoreOptions{Weight: weight})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				pass(time.Second)
				if err := p.Release(w.ctx); err != nil {
					t.Error(err)
				}
			})
			pass(time.Second)
		}
		wait(a, "all", 4)
		wait(b, "one", 1)
		w.ok(small[0].Release(w.ctx))
		pass(10 * time.Second) // the slot that is free is for the one that came first
		w.ok(p.Release(w.ctx))
		pass(10 * time.Second)
		w.ok(small[1].Release(w.ctx))
		waits.Wait()
		if fmt.Sprint(order) != "[all one]" {
			t.Errorf("the order is %v", order)
		}
		for _, weight := range []int{-1, 5} {
			if _, err := a.Acquire(w.ctx, SemaphoreOptions{Weight: weight}); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("a weight of %d: %v", weight, err)
			}
		}
		p, err = a.Acquire(w.ctx, SemaphoreOptions{Weight: 4})
		w.ok(err)
		ctx, cancel := w.brief(time.Second)
		defer cancel()
		if _, err := b.Acquire(ctx, SemaphoreOptions{Weight: 2}); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("until the deadline: %v", err)
		}
		w.ok(two.BreakLock(w.ctx, semDir+"/"+slotName(2), "a test", false))
		began := time.Now()
		w.over(p)
		if err, took := p.Err(), time.Since(began); !errors.Is(err, api.LockLost) || took > time.Second {
			t.Errorf("one of four was taken away: %v, after %v", err, took)
		}
		if err := p.Release(w.ctx); !errors.Is(err, api.LockLost) {
			t.Errorf("released: %v", err)
		}
		_, err = b.TryAcquire(w.ctx, SemaphoreOptions{Weight: 4})
		w.ok(err)
		w.lives(one)
	})
}

// over waits until something has ended, for longer than a name is waited for.
func (w *world) over(of interface{ Done() <-chan struct{} }) {
	w.t.Helper()
	select {
	case <-of.Done():
	case <-time.After(2 * inherit):
		w.t.Error("it has not ended")
	}
}

// Who has some slots, and loses his turn, does not wait with them for who has the others.
func TestSemaphoreOfWeightLosesItsTurn(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		theirs, err := two.Acquire(w.ctx, semDir+"/"+slotName(1)) // there is no such directory yet
		if err == nil {
			t.Fatal(theirs)
		}
		w.mkdir(two, semDir)
		theirs, err = two.Acquire(w.ctx, semDir+"/"+slotName(1))
		w.ok(err)
		had := make(chan *Permit)
		go func() {
			p, err := NewSemaphore(one, semDir, 2).Acquire(w.ctx, SemaphoreOptions{Weight: 2})
			if err != nil {
				t.Error(err)
			}
			had <- p
		}()
		pass(time.Second)
		w.ok(two.BreakLock(w.ctx, semDir+"/"+turnstileName, "a test", false))
		ctx, cancel := w.brief(time.Minute)
		defer cancel()
		// One who was let through as well.
		other, err := two.Acquire(ctx, semDir+"/"+slotName(0))
		w.ok(err)
		w.ok(other.Release(w.ctx))
		w.ok(theirs.Release(w.ctx))
		w.ok((<-had).Release(w.ctx))
		w.lives(one)
	})
}

// A slot that is taken away while others are waited for is let go of at once, and had again.
func TestSemaphoreOfWeightLosesASlot(t *testing.T) {
	t.Parallel()
	for _, free := range []bool{true, false} {
		inSmallWorld(t, func(w *world) {
			one, two := w.dial("h1"), w.dial("h2")
			sem := NewSemaphore(two, semDir, 2)
			p, err := sem.Acquire(w.ctx, SemaphoreOptions{})
			w.ok(err)
			var other *Permit
			if !free {
				other, err = sem.Acquire(w.ctx, SemaphoreOptions{})
				w.ok(err)
			}
			had := make(chan *Permit)
			go func() {
				p, err := NewSemaphore(one, semDir, 2).Acquire(w.ctx, SemaphoreOptions{Weight: 2})
				if err != nil {
					t.Error(err)
				}
				had <- p
			}()
			pass(time.Second)
			if !free {
				w.ok(other.Release(w.ctx))
				pass(time.Second)
			}
			w.ok(two.BreakLock(w.ctx, semDir+"/"+slotName(1-p.Slot()), "a test", false))
			pass(time.Second) // well before the end of the lease, which is not extended as long as it is not let go of
			x, err := two.Cell().Explain(w.ctx, semDir+"/"+slotName(1-p.Slot()))
			w.ok(err)
			if x.Lock.Revoked != "" || len(x.Lock.Holders) != 1 {
				t.Errorf("the slot was taken away, and is %+v", x.Lock)
			}
			w.lives(one)
			w.ok(p.Release(w.ctx))
			w.ok((<-had).Release(w.ctx))
		})
	}
}

// No slot is two holders', and nobody waits for ever, however many slots each wants.
func TestSemaphoreOfWeightRandom(t *testing.T) {
	t.Parallel()
	const n, clients = 4, 6
	inWorld(t, func(w *world) {
		s := newStorm(w, 1)
		for i := range clients {
			s.live(fmt.Sprintf("h%d", i), func(c *client.Client, r *rand.Rand) error {
				ctx, cancel := w.brief(10 * time.Minute)
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
				s.holdAll(p, r)
				return p.Release(context.WithoutCancel(ctx))
			})
		}
		s.rage(0)
		if s.model.total < *rounds/4 {
			t.Errorf("only %d holds in %d rounds", s.model.total, *rounds)
		}
	})
}

// holdAll notes that the slots of a permit are held for some time, or until its context ends.
func (s *storm) holdAll(p *Permit, r *rand.Rand) {
	if p.Context().Err() != nil {
		return
	}
	for _, slot := range p.Slots() {
		one := s.model.begin(slotName(slot))
		defer one.end()
	}
	select {
	case <-p.Done():
	case <-time.After(time.Duration(r.IntN(3_000)) * time.Millisecond):
	}
}
