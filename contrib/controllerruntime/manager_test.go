package chubbyleader_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// A manager that is stopped hands over at once, to one that waits. Afterwards its lock can be used by
// another manager.
func TestHandOver(t *testing.T) {
	for _, release := range []bool{true, false} {
		inWorld(t, func(w *world) {
			one, two := w.pair(func(o *manager.Options) { o.LeaderElectionReleaseOnCancel = release })
			began := time.Now()
			one.stop()
			w.Leader("one", 5*time.Second)
			if took := time.Since(began); took > 300*time.Millisecond {
				t.Errorf("release %v: the hand-over took %v", release, took)
			}
			if err := w.ended(one, time.Second); err != nil {
				t.Error(err)
			}
			w.start(one.lock, options(), w.work("one"))
			w.Sleep(10 * time.Second)
			two.stop()
			w.Leader("two", 5*time.Second)
		})
	}
}

// The lock is not released while a runnable is at work, though the manager has given up waiting for it.
func TestSlowRunnable(t *testing.T) {
	inWorld(t, func(w *world) {
		patience := time.Second
		o := options()
		o.GracefulShutdownTimeout = &patience
		stopped := make(chan time.Time, 1)
		one := w.start(w.lock("one"), o, manager.RunnableFunc(func(ctx context.Context) error {
			<-ctx.Done()
			for range 300 { // 3 s
				w.Act(ctx, "one")
				w.Sleep(10 * time.Millisecond)
			}
			stopped <- time.Now()
			return nil
		}))
		<-one.Elected()
		w.run("two")
		w.Sleep(10 * time.Second)
		one.stop()
		w.Leader("one", 10*time.Second)
		if gap := time.Since(<-stopped); gap > 500*time.Millisecond {
			t.Errorf("two leads %v after one has stopped", gap)
		}
		if err := w.ended(one, time.Second); err == nil {
			t.Error("Start has waited for a runnable that did not stop, and says nothing")
		}
	})
}

// A leader that loses the leadership stops its runnables before another leads, and Start returns the
// loss. Another manager with the same lock can lead again.
func TestLosses(t *testing.T) {
	none := func(*world) {}
	for _, c := range []struct {
		name       string
		make, heal func(w *world)
		limit      time.Duration // until Start returns, counted from the failure, or its end if the manager is stopped
	}{
		{"lock broken", func(w *world) {
			w.Operate(func(ctx context.Context, c *client.Client, _ api.Holder) error {
				return c.BreakLock(ctx, path, "a drill", false)
			})
		}, none, time.Second},
		{"session ended", func(w *world) {
			w.Operate(func(ctx context.Context, c *client.Client, h api.Holder) error {
				return c.EndSession(ctx, h.Session, "a drill")
			})
		}, none, time.Second},
		{"session expired", func(w *world) {
			w.Operate(func(_ context.Context, _ *client.Client, h api.Holder) error { w.Cell.Expire(h.Session); return nil })
		}, none, time.Second},
		{"cut off", func(w *world) { w.Cell.Cut("one") }, func(w *world) { w.Cell.Heal("one") }, api.DefaultLease + 6*time.Second},
		{"paused", func(w *world) { w.Pause("one") }, func(w *world) { w.Resume("one") }, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				one, two := w.pair()
				began := time.Now()
				c.make(w)
				if c.name != "paused" {
					if err := w.ended(one, time.Minute); !errors.Is(err, api.LockLost) {
						t.Errorf("Start returned %v", err)
					}
					if took := time.Since(began); took > c.limit {
						t.Errorf("Start returned after %v", took)
					}
				}
				w.Leader("one", time.Minute)
				w.Sleep(5 * time.Second)
				c.heal(w)
				if c.name == "paused" {
					if err := w.ended(one, time.Second); !errors.Is(err, api.LockLost) {
						t.Errorf("Start returned %v", err)
					}
				}
				w.start(one.lock, options(), w.work("one"))
				w.Sleep(15 * time.Second)
				two.stop()
				w.Leader("two", 30*time.Second)
			})
		})
	}
}

// A fail-over of the cell's master changes no leader.
func TestFailOver(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.pair()
		before := w.Leader("", time.Second)
		for range 2 {
			w.Cell.Restart(w.Cell.FailOver())
			w.Sleep(15 * time.Second)
		}
		if now := w.Leader("", time.Second); now != before {
			t.Errorf("%v led, and now %v", before, now)
		}
		select {
		case err := <-one.done:
			t.Errorf("one has ended: %v", err)
		case err := <-two.done:
			t.Errorf("two has ended: %v", err)
		default:
		}
	})
}
