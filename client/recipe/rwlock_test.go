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
	"github.com/chubbylock/chubby/client"
)

const rwPath = "/ls/local/rw"

// Readers share, a writer excludes, and nobody overtakes a writer who came earlier.
func TestRWLock(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		a, b := NewRWLock(one, rwPath, RWLockOptions{LockDelay: api.DefaultLockDelay}), NewRWLock(two, rwPath, RWLockOptions{LockDelay: api.DefaultLockDelay})
		first, err := a.RLock(w.ctx)
		w.ok(err)
		second, err := a.RLock(w.ctx) // another of the same client
		w.ok(err)
		third, err := b.TryRLock(w.ctx)
		w.ok(err)
		if _, err := b.TryLock(w.ctx); !errors.Is(err, api.LockHeld) {
			t.Errorf("a writer beside readers: %v", err)
		}
		w.failOver()
		var mu sync.Mutex // guards order
		var order []string
		var all sync.WaitGroup
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		all.Go(func() {
			l, err := b.Lock(w.ctx, client.Reason("a writer"))
			if err != nil {
				t.Error(err)
				return
			}
			note("writer")
			pass(time.Second)
			_ = l.Release(w.ctx)
		})
		pass(time.Second)
		all.Go(func() {
			l, err := a.RLock(w.ctx)
			if err != nil {
				t.Error(err)
				return
			}
			note("reader")
			_ = l.Release(w.ctx)
		})
		pass(time.Second)
		w.ok(first.Release(w.ctx))
		w.ok(second.Release(w.ctx))
		w.ok(third.Release(w.ctx))
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
		s := newStorm(w, clients)
		writing := newClaims(1)
		s.left /= 2
		for i := range clients {
			s.live(fmt.Sprintf("h%d", i), func(c *client.Client, r *rand.Rand) error {
				ctx, cancel := w.brief(time.Duration(r.IntN(40_000)) * time.Millisecond)
				defer cancel()
				lock := NewRWLock(c, rwPath, RWLockOptions{LockDelay: api.DefaultLockDelay})
				if r.IntN(3) > 0 {
					l, err := lock.RLock(ctx)
					if err != nil {
						return err
					}
					one := writing.join("reader")
					s.hold(l.Context(), r, "the lock for reading")
					one.end()
					return l.Release(ctx)
				}
				l, err := lock.Lock(ctx)
				if err != nil {
					return err
				}
				one := writing.join("writer")
				s.hold(l.Context(), r, "the lock for writing")
				one.end()
				return l.Release(ctx)
			})
		}
		s.rage(0)
		writing.check(t)
		if writing.total < *rounds/8 { // of half the rounds
			t.Errorf("only %d holds in %d rounds", writing.total, *rounds/2)
		}
	})
}

// join notes a hold of the one lock by a reader or a writer: a writer is alone.
func (c *claims) join(as string) *claim {
	one := c.begin(fmt.Sprintf("%s %d", as, rand.Uint64()))
	c.mu.Lock()
	defer c.mu.Unlock()
	readers, writers := 0, 0
	for what, held := range c.held {
		if what[0] == 'r' {
			readers += len(held)
		} else {
			writers += len(held)
		}
	}
	if (writers > 1 || writers == 1 && readers > 0) && c.fault == nil {
		c.fault = fmt.Errorf("%d writers and %d readers at once", writers, readers)
	}
	return one
}

// A Lock whose context ends before its file is open fails with DeadlineExceeded, not with Uncertain: the lock is not held.
func TestRWLockCutOff(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		lock := NewRWLock(w.dial("h1"), "/ls/local/rw", RWLockOptions{LockDelay: NoLockDelay})
		w.Cut("h1")
		defer w.Heal("h1")
		brief, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		for _, err := range []error{second(lock.Lock(brief)), second(lock.TryRLock(brief))} {
			if !errors.Is(err, api.DeadlineExceeded) || api.CodeOf(err) != api.DeadlineExceeded {
				t.Error(err)
			}
		}
	})
}
