//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

const rwPath = "/ls/local/rw"

// Readers share, a writer excludes, and nobody overtakes a writer who came earlier.
func TestRWLock(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		a, b := NewRWLock(one, rwPath, RWLockOptions{LockDelay: api.DefaultLockDelay}), NewRWLock(two, rwPath, RWLockOptions{LockDelay: api.DefaultLockDelay})
		first, err := a.RLock(w.Ctx)
		w.OK(err)
		second, err := a.RLock(w.Ctx) // another of the same client
		w.OK(err)
		third, err := b.TryRLock(w.Ctx)
		w.OK(err)
		if _, err := b.TryLock(w.Ctx); !errors.Is(err, api.LockHeld) {
			t.Errorf("a writer beside readers: %v", err)
		}
		w.Succeed()
		var mu sync.Mutex // guards order
		var order []string
		var all sync.WaitGroup
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		all.Go(func() {
			l, err := b.Lock(w.Ctx, client.Reason("a writer"))
			if err != nil {
				t.Error(err)
				return
			}
			note("writer")
			pass(time.Second)
			_ = l.Release(w.Ctx)
		})
		pass(time.Second)
		all.Go(func() {
			l, err := a.RLock(w.Ctx)
			if err != nil {
				t.Error(err)
				return
			}
			note("reader")
			_ = l.Release(w.Ctx)
		})
		pass(time.Second)
		w.OK(first.Release(w.Ctx))
		w.OK(second.Release(w.Ctx))
		w.OK(third.Release(w.Ctx))
		all.Wait()
		if fmt.Sprint(order) != "[writer reader]" {
			t.Errorf("the order is %v", order)
		}
	})
}

// A writer never meets anybody, whoever dies, gives up or takes over.
func TestRWLockRandom(t *testing.T) {
	t.Parallel()
	const clients = 6
	inWorld(t, func(w *world) {
		s := recipetest.NewStorm(w.World, clients, *rounds/2)
		for i := range clients {
			s.Live(fmt.Sprintf("h%d", i), func(c *client.Client, r *rand.Rand) error {
				ctx, cancel := w.Brief(time.Duration(r.IntN(40_000)) * time.Millisecond)
				defer cancel()
				lock := NewRWLock(c, rwPath, RWLockOptions{LockDelay: api.DefaultLockDelay})
				if r.IntN(3) > 0 {
					l, err := lock.RLock(ctx)
					if err != nil {
						return err
					}
					s.Hold(l.Context(), r, "the lock", 1)
					return l.Release(ctx)
				}
				l, err := lock.Lock(ctx)
				if err != nil {
					return err
				}
				s.Hold(l.Context(), r, "the lock", clients)
				return l.Release(ctx)
			})
		}
		s.Rage(0, *rounds/8)
	})
}

// A Lock whose context ends before its file is open fails with DeadlineExceeded, not with Uncertain: the lock is not held.
func TestRWLockCutOff(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		lock := NewRWLock(w.Client("h1"), "/ls/local/rw", RWLockOptions{LockDelay: NoLockDelay})
		w.Cut("h1")
		defer w.Heal("h1")
		brief, cancel := context.WithTimeout(w.Ctx, time.Second)
		defer cancel()
		for _, err := range []error{second(lock.Lock(brief)), second(lock.TryRLock(brief))} {
			if !errors.Is(err, api.DeadlineExceeded) || api.CodeOf(err) != api.DeadlineExceeded {
				t.Error(err)
			}
		}
	})
}
