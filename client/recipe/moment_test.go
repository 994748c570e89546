//go:build linux

package recipe

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

// A lock that an operator takes away in the moment in which it is granted is waited for again: the candidate
// remains one, and whoever wants a slot, or its turn, gets it.
func TestTakenInTheMomentOfTheGrant(t *testing.T) {
	t.Parallel()
	campaign := func(ctx context.Context, c *client.Client) error {
		p, err := Campaign(ctx, c, office, CampaignOptions{LockDelay: NoLockDelay})
		if err != nil {
			return err
		}
		return p.Resign(ctx)
	}
	acquire := func(ctx context.Context, c *client.Client) error {
		p, err := NewSemaphore(c, semDir, 1).Acquire(ctx, SemaphoreOptions{LockDelay: NoLockDelay})
		if err != nil {
			return err
		}
		return p.Release(ctx)
	}
	for lock, one := range map[string]struct {
		method string
		act    func(context.Context, *client.Client) error
	}{
		office:                       {"Acquire", campaign},
		semDir + "/" + turnstileName: {"Acquire", acquire},
		semDir + "/" + slotName(0):   {"TryAcquire", acquire},
	} {
		recipetest.IsRobbed(t, lock, one.method, nil, one.act)
	}
}

// So it is with a slot that was waited for among others.
func TestTakenFromWhoWaitsForAll(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		inSmallWorld(t, func(w *world) {
			operator, d := w.Client("operator"), w.Deafen("deaf", "Acquire")
			d.Hear(true)
			s := NewSemaphore(operator, semDir, 2)
			var held []*Permit
			for range 2 {
				p, err := s.Acquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay})
				w.OK(err)
				held = append(held, p)
			}
			done := make(chan error, 1)
			go func() {
				ctx, cancel := w.Brief(time.Minute)
				defer cancel()
				p, err := NewSemaphore(d.Client, semDir, 2).Acquire(ctx, SemaphoreOptions{LockDelay: NoLockDelay})
				if err == nil {
					err = p.Release(ctx)
				}
				done <- err
			}()
			pass(time.Second)
			d.Hear(false)
			w.OK(held[0].Release(w.Ctx))
			w.Rob(operator, d, semDir+"/slot-", now)
			w.OK(<-done)
			w.OK(held[1].Release(w.Ctx))
			w.Lives(d.Client)
		})
	}
}

// Whoever waits for a slot is not put off by another whose file is deleted, and has that one's successor when
// its lock-delay is over.
func TestSlotIsDeleted(t *testing.T) {
	t.Parallel()
	for _, freed := range []bool{true, false} {
		inSmallWorld(t, func(w *world) {
			const delay = 30 * time.Second
			o := SemaphoreOptions{LockDelay: delay}
			one, two, operator := w.Client("h1"), w.Client("h2"), w.Client("operator")
			lost, err := NewSemaphore(one, semDir, 2).Acquire(w.Ctx, o)
			w.OK(err)
			other, err := NewSemaphore(operator, semDir, 2).Acquire(w.Ctx, o)
			w.OK(err)
			w.Expire(one.Session())
			type result struct {
				p   *Permit
				err error
			}
			got := make(chan result, 1)
			go func() {
				p, err := NewSemaphore(two, semDir, 2).Acquire(w.Ctx, o)
				got <- result{p, err}
			}()
			pass(5 * time.Second)
			w.Rm(operator, semDir+"/"+slotName(lost.Slot()))
			pass(time.Second)
			want := lost.Slot()
			if freed {
				want = other.Slot()
				w.OK(other.Release(w.Ctx))
			}
			select {
			case r := <-got:
				w.OK(r.err)
				if r.p.Slot() != want {
					t.Errorf("slot %d, want %d", r.p.Slot(), want)
				}
			case <-time.After(delay):
				t.Error("it waits for a slot that is free")
			}
		})
	}
}

// A slot whose file is deleted when it has just been opened is free all the same: nobody waits for another, or
// is refused.
func TestSlotIsDeletedWhenItIsTried(t *testing.T) {
	t.Parallel()
	const way = 100 * time.Millisecond
	for _, n := range []int{1, 2} {
		for name, acquire := range map[string]func(*Semaphore, context.Context, SemaphoreOptions) (*Permit, error){
			"Acquire": (*Semaphore).Acquire, "TryAcquire": (*Semaphore).TryAcquire,
		} {
			inSmallWorld(t, func(w *world) {
				operator := w.Client("operator")
				w.Slow("far", way)
				far := w.Client("far", func(cfg *client.Config) { cfg.NoCache = true }) // so that nobody waits for it
				s := NewSemaphore(operator, semDir, n)
				free, err := s.Acquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay})
				w.OK(err)
				for range n - 1 {
					_, err := s.Acquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay})
					w.OK(err)
				}
				w.OK(free.Release(w.Ctx))
				slot := slotName(free.Slot())
				w.Rm(operator, semDir+"/"+slot)
				got := make(chan error, 1)
				go func() {
					ctx, cancel := w.Brief(time.Minute)
					defer cancel()
					p, err := acquire(NewSemaphore(far, semDir, n), ctx, SemaphoreOptions{LockDelay: NoLockDelay})
					if err == nil {
						err = p.Release(ctx)
					}
					got <- err
				}()
				dir := w.Read(operator, semDir)
				isThere := func(one api.Stat) bool { return one.Path.Base() == slot }
				for there := false; !there; pass(way / 10) {
					list, err := dir.ReadDir(w.Ctx)
					w.OK(err)
					there = slices.ContainsFunc(list, isThere)
				}
				w.Rm(operator, semDir+"/"+slot) // far has not heard yet that it is open
				if err := <-got; err != nil {
					t.Errorf("%s of %d: %v", name, n, err)
				}
			})
		}
	}
}

// When the file of one of several locks is deleted while it is waited for, the error says that, and not that
// another was released.
func TestOneOfSeveralIsDeleted(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		h, err := one.Open(w.Ctx, "/ls/local/z", client.OpenOptions{Write: true, Create: client.File})
		w.OK(err)
		_, err = h.Acquire(w.Ctx, api.Exclusive)
		w.OK(err)
		failed := make(chan error, 1)
		go func() {
			_, err := AcquireAll(w.Ctx, two, []string{"/ls/local/a", "/ls/local/z"}, AllOptions{LockDelay: NoLockDelay})
			failed <- err
		}()
		pass(time.Second)
		w.OK(h.Delete(w.Ctx))
		if err := <-failed; !errors.Is(err, api.HandleClosed) || errors.Is(err, client.LockReleased) {
			t.Errorf("%v", err)
		}
		locks, err := one.Cell().LocksOf(w.Ctx, two.Session())
		if err != nil || len(locks) != 0 {
			t.Errorf("%v, %v", locks, err)
		}
	})
}
