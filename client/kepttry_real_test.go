//go:build linux

package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// tryAcquire tries the lock once, and says how long that took.
func (c *cachers) tryAcquire(h *client.Handle) (*client.Lock, time.Duration, error) {
	began := time.Now()
	l, err := h.TryAcquire(c.t.Context(), api.Exclusive)
	return l, time.Since(began), err
}

// TryAcquire gets a lock that is kept and not used, also of several readers.
func TestTryAcquireGetsAnIdleLock(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		for range 5 {
			l := c.acquire(c.h1)
			c.release(l)
			got, took, err := c.tryAcquire(c.h2)
			if err != nil || took > time.Second || got.Token() <= l.Token() {
				t.Fatalf("%v, after %v", err, took)
			}
			c.release(got)
		}
		third, h3 := c.open("three")
		for _, h := range []*client.Handle{c.h1, c.h2} {
			l, err := h.Acquire(t.Context(), api.Shared)
			if err != nil {
				t.Fatal(err)
			}
			c.release(l)
		}
		got, took, err := c.tryAcquire(h3)
		if err != nil || took > time.Second {
			t.Fatalf("%v, after %v", err, took)
		}
		c.release(got)
		if err := third.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TryAcquire is refused soon while the lock is used, and by the one that has it, and once only it waits for one
// who does not answer.
func TestTryAcquireOfAKeptLockIsRefusedSoon(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		l := c.acquire(c.h1)
		c.release(l)
		l = c.acquire(c.h1)
		for _, h := range []*client.Handle{c.h2, c.h1} {
			if _, took, err := c.tryAcquire(h); !errors.Is(err, api.LockHeld) || took > 500*time.Millisecond {
				t.Errorf("of a lock that is used: %v, after %v", err, took)
			}
		}
		c.release(l)
		c.release(c.acquire(c.h1))
		c.cell.Cut("one")
		if _, took, err := c.tryAcquire(c.h2); !errors.Is(err, api.LockHeld) || took > 2*time.Second {
			t.Errorf("of one that is cut off: %v, after %v", err, took)
		}
		if _, took, err := c.tryAcquire(c.h2); !errors.Is(err, api.LockHeld) || took > 100*time.Millisecond {
			t.Errorf("of one that did not answer before: %v, after %v", err, took)
		}
		c.cell.Heal("one")
	})
}

// Who tries a lock again and again has it some time, however often it is used by one that keeps it.
func TestTryAcquireBesideABusyKeeper(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				l := c.acquire(c.h1)
				pass(time.Millisecond)
				c.release(l)
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		tries := 1
		for ; tries < 40; tries++ {
			pass(333 * time.Millisecond)
			if l, _, err := c.tryAcquire(c.h2); err == nil {
				c.release(l)
				break
			}
		}
		if tries > 10 {
			t.Errorf("%d tries of a lock that is used for a twentieth of the time", tries)
		}
		close(stop)
		<-stopped
	})
}

// A node whose lock is kept, and not used, can be deleted; one whose lock is used cannot.
func TestDeleteOfANodeWhoseLockIsKept(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		l := c.acquire(c.h1)
		if err := c.h2.Delete(t.Context()); !errors.Is(err, api.LockHeld) {
			t.Errorf("its lock is used: %v", err)
		}
		c.release(l)
		c.release(c.acquire(c.h1))
		if err := c.h2.Delete(t.Context()); err != nil {
			t.Errorf("its lock is not used: %v", err)
		}
		if _, err := c.h1.Acquire(t.Context(), api.Exclusive); !errors.Is(err, api.HandleClosed) {
			t.Errorf("after the deletion: %v", err)
		}
	})
}
