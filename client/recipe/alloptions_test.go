//go:build linux

package recipe

import (
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// With Try nobody waits: all that are free, or none, and who holds the one that is not.
func TestAcquireAllTry(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		const a, b, c = "/ls/local/a", "/ls/local/b", "/ls/local/c"
		held, err := AcquireAll(w.ctx, one, []string{b}, AllOptions{LockDelay: 10 * time.Second, Reason: "mine"})
		w.ok(err)
		began := time.Now()
		_, err = AcquireAll(w.ctx, two, []string{c, b, a}, AllOptions{LockDelay: NoLockDelay, Try: true})
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Code != api.LockHeld || refused.Path != b || len(refused.Holders) != 1 || refused.Holders[0].Session != one.Session() {
			t.Errorf("one is held: %v", err)
		}
		if locks, err := one.Cell().LocksOf(w.ctx, two.Session()); err != nil || len(locks) != 0 || time.Since(began) > time.Second {
			t.Errorf("after %v it holds %v, %v", time.Since(began), locks, err)
		}
		w.Expire(one.Session())
		pass(time.Second)
		if _, err = AcquireAll(w.ctx, two, []string{a, b}, AllOptions{LockDelay: NoLockDelay, Try: true}); !errors.Is(err, api.LockDelayed) {
			t.Errorf("one is delayed: %v", err)
		}
		_ = held.Release(w.ctx) // it was lost
		w.settle()
		all, err := AcquireAll(w.ctx, two, []string{b, a}, AllOptions{LockDelay: NoLockDelay, Try: true})
		w.ok(err)
		locks := all.Locks()
		if len(locks) != 2 || locks[0].Path() != a || locks[1].Path() != b || locks[0].Err() != nil {
			t.Errorf("the locks: %v", locks)
		}
		w.ok(all.Release(w.ctx))
	})
}

// Whoever waits for several locks is told which, and those who would wait for each other without end are
// told that.
func TestAcquireAllWaits(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		const a, b = "/ls/local/a", "/ls/local/b"
		first, err := AcquireAll(w.ctx, one, []string{a}, AllOptions{LockDelay: NoLockDelay, Owner: "job1"})
		w.ok(err)
		second, err := AcquireAll(w.ctx, two, []string{b}, AllOptions{LockDelay: NoLockDelay, Owner: "job2"})
		w.ok(err)
		waits := make(chan string, 100)
		done := make(chan error, 1)
		go func() {
			all, err := AcquireAll(w.ctx, one, []string{"/ls/local/0", b}, AllOptions{LockDelay: NoLockDelay, Owner: "job1", OnQueued: func(path string, q client.Queued) { waits <- path }})
			if err == nil {
				err = all.Release(w.ctx)
			}
			done <- err
		}()
		if path := <-waits; path != b {
			t.Errorf("it waits for %s", path)
		}
		if _, err := AcquireAll(w.ctx, two, []string{a}, AllOptions{LockDelay: NoLockDelay, Owner: "job2"}); !errors.Is(err, api.Deadlock) {
			t.Errorf("each waits for the other: %v", err)
		}
		w.ok(second.Release(w.ctx))
		w.ok(<-done)
		w.ok(first.Release(w.ctx))
	})
}
