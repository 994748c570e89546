package celltest_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// TestWallClockSteps: on any replica, during a lease or a lock-delay, the time
// of day is set an hour forward or back. That has no effect on any session,
// lock, lock-delay or cache. Only the "since" that people see follows it.
func TestWallClockSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3)
		steady, next, other := dial(t, c, "steady"), dial(t, c, "next"), dial(t, c, "other")
		file := steady.open(t, "/ls/local/file", api.DefaultLockDelay)
		put(t, file, "as it was")
		held := acquire(t, file)
		rival := other.open(t, "/ls/local/file", 0)
		epoch := steady.Epoch()
		for i, step := range []struct {
			id string
			by time.Duration
		}{{"r1", time.Hour}, {"r2", time.Hour}, {"r3", time.Hour}, {"r1", -time.Hour}, {"r2", -time.Hour}, {"r3", -time.Hour}} {
			contents(t, file, "as it was")
			read := steady.Stats().Cache
			path := fmt.Sprint("/ls/local/lock", i)
			passesOn(t, c, dial(t, c, path), next.open(t, path, 0), step.id, step.by)
			if shown := since(t, other, path); i == 2 && shown < time.Hour || i == 5 && shown > time.Minute {
				t.Errorf("after the step of %v by %v, the lock is shown to be held since %v ahead of the true time", step.id, step.by, shown)
			}
			contents(t, file, "as it was")
			if now := steady.Stats().Cache; now.Hits != read.Hits+1 || now.Misses != read.Misses {
				t.Errorf("the cache: %+v, then %+v", read, now)
			}
			if _, err := rival.TryAcquire(t.Context(), api.Exclusive); !errors.Is(err, api.LockHeld) {
				t.Errorf("the lock of a session that lives: %v", err)
			}
		}
		for _, h := range []*host{steady, next, other} {
			if states := h.seen(); states != nil || h.State() != session.Safe || h.Epoch() != epoch {
				t.Errorf("%s: %v in between, %v at the end; epoch %v, then %v", h.name, states, h.State(), epoch, h.Epoch())
			}
		}
		for id, by := range map[string]time.Duration{"r1": time.Hour, "r2": -time.Hour, "r3": 0} {
			c.StepWall(id, by)
		}
		c.Transfer()
		contents(t, file, "as it was")
		if err := steady.CheckSequencer(t.Context(), held.Sequencer().String()); err != nil || held.Err() != nil {
			t.Errorf("the lock: %v, %v", err, held.Err())
		}
	})
}

// passesOn cuts the holder of a lock off, and sets the time of day of a
// replica: during the lease, back, and again during the lock-delay. The lock
// must pass on as it would without that.
func passesOn(t *testing.T, c *celltest.Cell, holder *host, next *client.Handle, id string, by time.Duration) {
	t.Helper()
	const delay = api.DefaultLockDelay
	acquire(t, holder.open(t, next.Path(), delay))
	cut := time.Now()
	c.Cut(holder.name)
	time.Sleep(3 * time.Second)
	c.StepWall(id, by)
	time.Sleep(api.DefaultLease)
	c.StepWall(id, -by)
	time.Sleep(time.Second)
	c.StepWall(id, by)
	acquire(t, next)
	// A client that has just got a lock has most of a lease before it.
	least, most := api.DefaultLease-time.Second+delay, api.DefaultLease+delay+time.Second
	if took := time.Since(cut); took < least || took > most {
		t.Errorf("%s stepped by %v: the lock passed on after %v, want %v to %v", id, by, took, least, most)
	}
}

// TestJump: a client whose clock is ahead gives up its lease or its session too
// early. A replica with a wrong clock ends no session.
func TestJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3)
		steady, hasty, lost := dial(t, c, "steady"), dial(t, c, "hasty"), dial(t, c, "lost")
		c.Jump("hasty", api.DefaultLease)
		c.Jump("lost", api.DefaultLease+api.DefaultGrace)
		time.Sleep(20 * time.Second) // the KeepAlive that is under way, and another
		if states, want := hasty.seen(), []session.State{session.Jeopardy, session.Safe}; !slices.Equal(states, want) {
			t.Errorf("the hasty client was %v, want %v", states, want)
		}
		if !errors.Is(lost.Err(), client.GraceOver) {
			t.Errorf("the lost client: %v", lost.Err())
		}
		for _, by := range []time.Duration{time.Hour, -time.Hour} {
			for _, id := range []string{"r1", "r2", "r3"} {
				c.Jump(id, by)
				time.Sleep(20 * time.Second)
			}
		}
		for _, h := range []*host{steady, hasty} {
			if states := h.seen(); states != nil || h.State() != session.Safe {
				t.Errorf("%s: %v because of a replica's clock, %v at the end", h.name, states, h.State())
			}
		}
	})
}

// since returns how much later than now the listing says that the lock's hold
// began.
func since(t *testing.T, h *host, path string) time.Duration {
	t.Helper()
	locks, err := h.Cell().Locks(t.Context(), path)
	if err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 {
		t.Fatalf("%+v, %v", locks, err)
	}
	return time.Until(time.Unix(locks[0].Holders[0].SinceUnix, 0)).Round(time.Minute)
}
