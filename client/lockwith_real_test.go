//go:build linux

package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// inCell is celltest.Run, with a context of an hour, so that what hangs fails.
func inCell(t *testing.T, replicas int, test func(ctx context.Context, cell *celltest.Cell)) {
	t.Helper()
	celltest.Run(t, replicas, func(t *testing.T, cell *celltest.Cell) { test(bounded(t, time.Hour), cell) })
}

const lockPath = "/ls/local/lock"

// The context of With ends with the caller's or with the lock, whichever is first, with the cause, and has the lock's sequencer.
func TestLockWith(t *testing.T) {
	inCell(t, 3, func(ctx context.Context, cell *celltest.Cell) {
		c, operator := cell.Client("h1"), cell.Client("operator")
		acquire := func() *client.Lock {
			t.Helper()
			return ok(c.Acquire(ctx, lockPath))(t)
		}
		type key struct{}
		why := errors.New("the caller's cause")
		outer, end := context.WithCancelCause(context.WithValue(ctx, key{}, "value"))
		l := acquire()
		within, stop := l.With(outer)
		if s, ok := sequencer.FromContext(within); !ok || s != l.Sequencer() || within.Value(key{}) != "value" {
			t.Errorf("%v %v, value %v", s, ok, within.Value(key{}))
		}
		if s, ok := sequencer.FromContext(l.Context()); !ok || s != l.Sequencer() {
			t.Errorf("in the lock's own context: %v %v", s, ok)
		}
		if within.Err() != nil {
			t.Errorf("it has ended: %v", context.Cause(within))
		}
		end(why)
		if <-within.Done(); !errors.Is(context.Cause(within), why) || l.Err() != nil {
			t.Errorf("the caller's context ended: %v, and the lock: %v", context.Cause(within), l.Err())
		}
		stop()

		within, stop = l.With(ctx)
		stop()
		if within.Err() == nil || l.Err() != nil {
			t.Errorf("after stop: %v, and the lock %v", within.Err(), l.Err())
		}

		within, stop = l.With(ctx)
		defer stop()
		must(t, operator.BreakLock(ctx, lockPath, "a test", false))
		select {
		case <-within.Done():
		case <-time.After(time.Second):
			t.Error("the lock was taken away, and the context goes on")
		}
		if !errors.Is(context.Cause(within), client.LockTaken) {
			t.Errorf("the lock was taken away: %v", context.Cause(within))
		}
		late, stop := l.With(ctx)
		defer stop()
		if late.Err() == nil || !errors.Is(context.Cause(late), client.LockTaken) {
			t.Errorf("With of a lock that was lost before: %v", context.Cause(late))
		}
		wants(t, "Release", l.Release(ctx), api.LockLost)

		l = acquire()
		within, stop = l.With(ctx)
		defer stop()
		cell.Cut("h1")
		<-within.Done()
		if !errors.Is(context.Cause(within), client.LeaseNearEnd) {
			t.Errorf("cut off: %v", context.Cause(within))
		}
	})
}

// A process that was stopped beyond its lease finds out in With itself, before any timer has fired.
func TestLockWithReadsTheClock(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		l := ok(cell.Client("h1").Acquire(ctx, lockPath))(t)
		cell.Jump("h1", api.DefaultLease+api.DefaultLockDelay)
		within, stop := l.With(ctx)
		defer stop()
		if within.Err() == nil {
			t.Error("the lease has ended, and the context has not")
		}
	})
}

// must ends the test if a call has failed, and noError reports that.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// bounded returns a context that ends after that time, or with the test.
func bounded(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func opened(t testing.TB, c *client.Client, path string, o client.OpenOptions) *client.Handle {
	t.Helper()
	return ok(c.Open(t.Context(), path, o))(t)
}

func acquired(t testing.TB, h *client.Handle) *client.Lock {
	t.Helper()
	return ok(h.Acquire(t.Context(), api.Exclusive))(t)
}

// ok returns what a call returns, and ends the test on its error.
func ok[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}
