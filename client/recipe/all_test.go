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

// All or nothing: what was taken is released when a later one cannot be had.
func TestAcquireAll(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		const a, b, c = "/ls/local/a", "/ls/local/b", "/ls/local/c"
		all, err := AcquireAll(w.Ctx, one, []string{c, a}, AllOptions{LockDelay: api.DefaultLockDelay, Shared: []string{b}, Reason: "all"})
		w.OK(err)
		var paths []string
		for _, seq := range all.Sequencers() {
			paths = append(paths, seq.Path.String()+" "+seq.Mode.String())
			w.OK(two.CheckSequencer(w.Ctx, seq.String()))
		}
		if fmt.Sprint(paths) != "[/ls/local/a exclusive /ls/local/b shared /ls/local/c exclusive]" {
			t.Errorf("%v", paths)
		}
		ctx, cancel := w.Brief(5 * time.Second)
		if _, err := AcquireAll(ctx, two, []string{"/ls/local/0", c}, AllOptions{LockDelay: api.DefaultLockDelay}); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("until the deadline: %v", err)
		}
		cancel()
		w.Succeed()
		ctx, cancel = w.Brief(5 * time.Second)
		shared, err := AcquireAll(ctx, two, []string{"/ls/local/0"}, AllOptions{LockDelay: api.DefaultLockDelay, Shared: []string{b}})
		w.OK(err)
		w.OK(shared.Release(w.Ctx))
		cancel()
		if all.Context().Err() != nil {
			t.Error(context.Cause(all.Context()))
		}
		w.OK(all.Release(w.Ctx))
		w.OK(all.Release(w.Ctx))
		if !errors.Is(context.Cause(all.Context()), client.LockReleased) {
			t.Errorf("after Release: %v", context.Cause(all.Context()))
		}
		for name, paths := range map[string][]string{"none": nil, "twice": {a, b, a}} {
			if _, err := AcquireAll(w.Ctx, one, paths, AllOptions{LockDelay: api.DefaultLockDelay}); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := AcquireAll(w.Ctx, one, []string{a, "/ls/elsewhere/b"}, AllOptions{LockDelay: api.DefaultLockDelay}); !errors.Is(err, api.WrongCell) {
			t.Errorf("another cell: %v", err)
		}
		all, err = AcquireAll(w.Ctx, two, []string{a, b, c}, AllOptions{LockDelay: api.DefaultLockDelay})
		w.OK(err)
		w.OK(one.BreakLock(w.Ctx, b, "a test", false))
		select {
		case <-all.Context().Done():
		case <-time.After(time.Second):
			t.Error("one lock was lost, and the context has not ended")
		}
		if err := all.Release(w.Ctx); !errors.Is(err, api.LockLost) {
			t.Errorf("Release of what was lost: %v", err)
		}
	})
}

// One that is lost while others are waited for ends the wait.
func TestAcquireAllLostOnTheWay(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		last, err := AcquireAll(w.Ctx, one, []string{"/ls/local/z"}, AllOptions{LockDelay: api.DefaultLockDelay})
		w.OK(err)
		failed := make(chan error)
		go func() {
			_, err := AcquireAll(w.Ctx, two, []string{"/ls/local/a", "/ls/local/z"}, AllOptions{LockDelay: api.DefaultLockDelay})
			failed <- err
		}()
		pass(time.Second)
		w.OK(one.BreakLock(w.Ctx, "/ls/local/a", "a test", false))
		if err := <-failed; !errors.Is(err, api.LockLost) {
			t.Errorf("%v", err)
		}
		w.OK(last.Release(w.Ctx))
		again, err := AcquireAll(w.Ctx, two, []string{"/ls/local/a", "/ls/local/z"}, AllOptions{LockDelay: api.DefaultLockDelay})
		w.OK(err)
		w.OK(again.Release(w.Ctx))
	})
}

// Clients that take sets that overlap, each in an order of its own, never wait for each other for ever,
// though nobody dies or gives up.
func TestAcquireAllNoDeadlock(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		ctx, cancel := w.Brief(5 * time.Minute)
		defer cancel()
		var clients sync.WaitGroup
		for i := range 5 {
			c := w.Client(fmt.Sprintf("h%d", i))
			clients.Go(func() {
				for range 10 {
					var paths []string
					for _, n := range rand.Perm(5)[:3] {
						paths = append(paths, fmt.Sprintf("/ls/local/lock-%d", n))
					}
					all, err := AcquireAll(ctx, c, paths, AllOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					pass(rand.N(100 * time.Millisecond))
					if err := all.Release(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		clients.Wait()
	})
}

// Clients that take sets that overlap exclude each other, whoever dies, gives up or takes over.
func TestAcquireAllRandom(t *testing.T) {
	t.Parallel()
	const locks, clients = 5, 6
	inWorld(t, func(w *world) {
		s := recipetest.NewStorm(w.World, 1, *rounds)
		for i := range clients {
			s.Live(fmt.Sprintf("h%d", i), func(c *client.Client, r *rand.Rand) error {
				var paths []string
				for _, n := range r.Perm(locks)[:1+r.IntN(3)] {
					paths = append(paths, fmt.Sprintf("/ls/local/lock-%d", n))
				}
				ctx, cancel := w.Ctx, context.CancelFunc(func() {})
				if r.IntN(3) == 0 {
					ctx, cancel = w.Brief(time.Duration(r.IntN(20_000)) * time.Millisecond)
				}
				defer cancel()
				all, err := AcquireAll(ctx, c, paths, AllOptions{LockDelay: api.DefaultLockDelay, Try: r.IntN(4) == 0})
				if err != nil {
					return err
				}
				var ends []func()
				for _, path := range paths {
					ends = append(ends, s.Model.Begin(path, 1))
				}
				select {
				case <-all.Context().Done():
				case <-time.After(time.Duration(r.IntN(2_000)) * time.Millisecond):
				}
				for _, end := range ends {
					end()
				}
				return all.Release(ctx)
			})
		}
		s.Rage(0, *rounds/2)
	})
}

// With Try nobody waits: all that are free, or none, and who holds the one that is not.
func TestAcquireAllTry(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		const a, b, c = "/ls/local/a", "/ls/local/b", "/ls/local/c"
		held, err := AcquireAll(w.Ctx, one, []string{b}, AllOptions{Reason: "mine"}) // with the default lock-delay
		w.OK(err)
		began := time.Now()
		_, err = AcquireAll(w.Ctx, two, []string{c, b, a}, AllOptions{LockDelay: NoLockDelay, Try: true})
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Code != api.LockHeld || refused.Path != b || len(refused.Holders) != 1 || refused.Holders[0].Session != one.Session() {
			t.Errorf("one is held: %v", err)
		}
		if locks, err := one.Cell().LocksOf(w.Ctx, two.Session()); err != nil || len(locks) != 0 || time.Since(began) > time.Second {
			t.Errorf("after %v it holds %v, %v", time.Since(began), locks, err)
		}
		w.Expire(one.Session())
		pass(time.Second)
		if _, err = AcquireAll(w.Ctx, two, []string{a, b}, AllOptions{LockDelay: NoLockDelay, Try: true}); !errors.Is(err, api.LockDelayed) {
			t.Errorf("one is delayed: %v", err)
		}
		_ = held.Release(w.Ctx) // it was lost
		w.Settle()
		all, err := AcquireAll(w.Ctx, two, []string{b, a}, AllOptions{LockDelay: NoLockDelay, Try: true})
		w.OK(err)
		locks := all.Locks()
		if len(locks) != 2 || locks[0].Path() != a || locks[1].Path() != b || locks[0].Err() != nil {
			t.Errorf("the locks: %v", locks)
		}
		w.OK(all.Release(w.Ctx))
	})
}

// Whoever waits for several locks is told which, and those who would wait for each other without end are
// told that.
func TestAcquireAllWaits(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		const a, b = "/ls/local/a", "/ls/local/b"
		first, err := AcquireAll(w.Ctx, one, []string{a}, AllOptions{LockDelay: NoLockDelay, Owner: "job1"})
		w.OK(err)
		second, err := AcquireAll(w.Ctx, two, []string{b}, AllOptions{LockDelay: NoLockDelay, Owner: "job2"})
		w.OK(err)
		waits := make(chan string, 100)
		done := make(chan error, 1)
		go func() {
			all, err := AcquireAll(w.Ctx, one, []string{"/ls/local/0", b}, AllOptions{LockDelay: NoLockDelay, Owner: "job1", OnQueued: func(path string, q client.Queued) { waits <- path }})
			if err == nil {
				err = all.Release(w.Ctx)
			}
			done <- err
		}()
		if path := <-waits; path != b {
			t.Errorf("it waits for %s", path)
		}
		if _, err := AcquireAll(w.Ctx, two, []string{a}, AllOptions{LockDelay: NoLockDelay, Owner: "job2"}); !errors.Is(err, api.Deadlock) {
			t.Errorf("each waits for the other: %v", err)
		}
		w.OK(second.Release(w.Ctx))
		w.OK(<-done)
		w.OK(first.Release(w.Ctx))
	})
}
