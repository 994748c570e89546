//go:build linux

package recipes

import (
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

const barrierPath = "/ls/local/gate/barrier"

// waiting starts a Wait.
func waiting(w *world, b *Barrier) <-chan error {
	passed := make(chan error, 1)
	go func() { passed <- b.Wait(w.Ctx) }()
	return passed
}

// stuck fails the test if somebody has passed within that time.
func stuck(t *testing.T, passed <-chan error, d time.Duration) {
	t.Helper()
	select {
	case err := <-passed:
		t.Errorf("passed a barrier that is raised: %v", err)
	case <-time.After(d):
	}
}

// A barrier that is raised holds up all, over a fail-over, and outlives who raised it.
func TestBarrier(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two, three := w.Client("h1"), w.Client("h2"), w.Client("h3")
		if err := NewBarrier(one, barrierPath, BarrierOptions{}).Wait(w.Ctx); !errors.Is(err, api.NotFound) {
			t.Errorf("without a directory: %v", err)
		}
		w.Mkdir(one, "/ls/local/gate")
		a, b, c := NewBarrier(one, barrierPath, BarrierOptions{}), NewBarrier(two, barrierPath, BarrierOptions{}), NewBarrier(three, barrierPath, BarrierOptions{})
		w.OK(b.Wait(w.Ctx))
		w.OK(a.Raise(w.Ctx))
		w.OK(a.Raise(w.Ctx))
		first, second := waiting(w, b), waiting(w, c)
		stuck(t, first, 15*time.Second)
		w.Put(one, "/ls/local/gate/other", "")
		w.Rm(one, "/ls/local/gate/other")
		w.Expire(one.Session())
		stuck(t, first, 15*time.Second)
		w.Succeed()
		stuck(t, second, 15*time.Second)
		w.OK(c.Lift(w.Ctx))
		w.OK(<-first)
		w.OK(<-second)
		w.OK(c.Lift(w.Ctx))
		w.OK(b.Wait(w.Ctx))
		w.OK(b.Raise(w.Ctx))
		ctx, cancel := w.Brief(time.Second)
		defer cancel()
		if err := c.Wait(ctx); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("Wait until the deadline: %v", err)
		}
		if err := NewBarrier(two, barrierPath, BarrierOptions{Ephemeral: true}).Raise(w.Ctx); !errors.Is(err, api.Exists) {
			t.Errorf("a barrier of the other kind: %v", err)
		}
	})
}

// Who waits is let through also if the barrier is raised again at once.
func TestBarrierRaisedAgain(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one := w.Client("h1")
		w.Mkdir(one, "/ls/local/gate")
		b := NewBarrier(one, barrierPath, BarrierOptions{})
		for range 20 {
			w.OK(b.Raise(w.Ctx))
			passed := waiting(w, NewBarrier(one, barrierPath, BarrierOptions{}))
			stuck(t, passed, time.Second)
			w.OK(b.Lift(w.Ctx))
			w.OK(b.Raise(w.Ctx))
			w.OK(<-passed)
		}
	})
}

// A barrier that is held by sessions is lifted when the last of them is over, and by nothing less.
func TestBarrierHeld(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two, three := w.Client("h1"), w.Client("h2"), w.Client("h3")
		w.Mkdir(one, "/ls/local/gate")
		held := BarrierOptions{Ephemeral: true}
		a, b, c := NewBarrier(one, barrierPath, held), NewBarrier(two, barrierPath, held), NewBarrier(three, barrierPath, held)
		w.OK(a.Raise(w.Ctx))
		w.OK(b.Raise(w.Ctx))
		w.OK(b.Raise(w.Ctx))
		passed := waiting(w, c)
		w.Expire(one.Session())
		stuck(t, passed, 15*time.Second)
		w.Succeed()
		stuck(t, passed, 15*time.Second)
		w.Cut("h2")
		cut := time.Now()
		w.OK(<-passed)
		if wait := time.Since(cut); wait > api.DefaultLease+2*time.Second {
			t.Errorf("let through %v after the last holder was cut off", wait)
		}
		for range 5 {
			w.OK(c.Raise(w.Ctx))
			stuck(t, waiting(w, c), time.Second)
			w.OK(c.Lift(w.Ctx))
			w.OK(c.Wait(w.Ctx))
		}
	})
}
