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

// All or nothing: what was taken is released when a later one cannot be had.
func TestAcquireAll(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		const a, b, c = "/ls/local/a", "/ls/local/b", "/ls/local/c"
		all, err := AcquireAll(w.ctx, one, []string{c, a}, AllOptions{LockDelay: api.DefaultLockDelay, Shared: []string{b}, Reason: "all"})
		w.ok(err)
		var paths []string
		for _, seq := range all.Sequencers() {
			paths = append(paths, seq.Path.String()+" "+seq.Mode.String())
			w.ok(two.CheckSequencer(w.ctx, seq.String()))
		}
		if fmt.Sprint(paths) != "[/ls/local/a exclusive /ls/local/b shared /ls/local/c exclusive]" {
			t.Errorf("%v", paths)
		}
		ctx, cancel := w.brief(5 * time.Second)
		if _, err := AcquireAll(ctx, two, []string{"/ls/local/0", c}, AllOptions{LockDelay: api.DefaultLockDelay}); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("until the deadline: %v", err)
		}
		cancel()
		w.failOver()
		ctx, cancel = w.brief(5 * time.Second)
		shared, err := AcquireAll(ctx, two, []string{"/ls/local/0"}, AllOptions{LockDelay: api.DefaultLockDelay, Shared: []string{b}})
		w.ok(err)
		w.ok(shared.Release(w.ctx))
		cancel()
		if all.Context().Err() != nil {
			t.Error(context.Cause(all.Context()))
		}
		w.ok(all.Release(w.ctx))
		w.ok(all.Release(w.ctx))
		if !errors.Is(context.Cause(all.Context()), client.LockReleased) {
			t.Errorf("after Release: %v", context.Cause(all.Context()))
		}
		for name, paths := range map[string][]string{"none": nil, "twice": {a, b, a}} {
			if _, err := AcquireAll(w.ctx, one, paths, AllOptions{LockDelay: api.DefaultLockDelay}); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := AcquireAll(w.ctx, one, []string{a, "/ls/elsewhere/b"}, AllOptions{LockDelay: api.DefaultLockDelay}); !errors.Is(err, api.WrongCell) {
			t.Errorf("another cell: %v", err)
		}
		all, err = AcquireAll(w.ctx, two, []string{a, b, c}, AllOptions{LockDelay: api.DefaultLockDelay})
		w.ok(err)
		w.ok(one.BreakLock(w.ctx, b, "a test", false))
		select {
		case <-all.Context().Done():
		case <-time.After(time.Second):
			t.Error("one lock was lost, and the context has not ended")
		}
		if err := all.Release(w.ctx); !errors.Is(err, api.LockLost) {
			t.Errorf("Release of what was lost: %v", err)
		}
	})
}

// One that is lost while others are waited for ends the wait.
func TestAcquireAllLostOnTheWay(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		last, err := AcquireAll(w.ctx, one, []string{"/ls/local/z"}, AllOptions{LockDelay: api.DefaultLockDelay})
		w.ok(err)
		failed := make(chan error)
		go func() {
			_, err := AcquireAll(w.ctx, two, []string{"/ls/local/a", "/ls/local/z"}, AllOptions{LockDelay: api.DefaultLockDelay})
			failed <- err
		}()
		pass(time.Second)
		w.ok(one.BreakLock(w.ctx, "/ls/local/a", "a test", false))
		if err := <-failed; !errors.Is(err, api.LockLost) {
			t.Errorf("%v", err)
		}
		w.ok(last.Release(w.ctx))
		again, err := AcquireAll(w.ctx, two, []string{"/ls/local/a", "/ls/local/z"}, AllOptions{LockDelay: api.DefaultLockDelay})
		w.ok(err)
		w.ok(again.Release(w.ctx))
	})
}

// Clients that take sets that overlap, each in an order of its own, never wait for each other for ever,
// though nobody dies or gives up.
func TestAcquireAllNoDeadlock(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		ctx, cancel := w.brief(5 * time.Minute)
		defer cancel()
		var clients sync.WaitGroup
		for i := range 5 {
			c := w.dial(fmt.Sprintf("h%d", i))
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
		s := newStorm(w, 1)
		for i := range clients {
			s.live(fmt.Sprintf("h%d", i), func(c *client.Client, r *rand.Rand) error {
				var paths []string
				for _, n := range r.Perm(locks)[:1+r.IntN(3)] {
					paths = append(paths, fmt.Sprintf("/ls/local/lock-%d", n))
				}
				ctx, cancel := w.ctx, context.CancelFunc(func() {})
				if r.IntN(3) == 0 {
					ctx, cancel = w.brief(time.Duration(r.IntN(20_000)) * time.Millisecond)
				}
				defer cancel()
				all, err := AcquireAll(ctx, c, paths, AllOptions{LockDelay: api.DefaultLockDelay, Try: r.IntN(4) == 0})
				if err != nil {
					return err
				}
				var holds []*claim
				for _, path := range paths {
					holds = append(holds, s.model.begin(path))
				}
				select {
				case <-all.Context().Done():
				case <-time.After(time.Duration(r.IntN(2_000)) * time.Millisecond):
				}
				for _, one := range holds {
					one.end()
				}
				return all.Release(ctx)
			})
		}
		s.rage(0)
		if s.model.total < *rounds/2 {
			t.Errorf("only %d holds in %d rounds", s.model.total, *rounds)
		}
	})
}
