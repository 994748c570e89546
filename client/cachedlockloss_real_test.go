//go:build linux

package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// An idle lock that is taken away is not used again.
func TestIdleLockIsTakenAway(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		l := c.acquire(c.h1)
		c.release(l)
		if err := c.two.BreakLock(t.Context(), "/ls/local/lock", "a test", false); err != nil {
			t.Fatal(err)
		}
		pass(time.Second) // the acknowledgement needs no owner
		other := c.acquire(c.h2)
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.h1.Acquire(within, api.Exclusive); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("two holders, or: %v", err)
		}
		c.release(other)
	})
}

// After a fail-over nothing idle is relied on: who waits at the new master before it knows of the
// holder gets the lock.
func TestIdleLockAtFailOver(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		l := c.acquire(c.h1)
		c.release(l)
		c.cell.Cut("one")
		c.cell.FailOver()
		got := make(chan *client.Lock)
		go func() { got <- c.acquire(c.h2) }()
		pass(2 * time.Second)
		c.cell.Heal("one")
		began := time.Now()
		next := <-got
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the waiter has it after %v", took)
		}
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.h1.Acquire(within, api.Exclusive); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("two holders, or: %v", err)
		}
		c.release(next)
	})
}

// One who uses its lock again and again hears of those who wait at a new master.
func TestLockInUseAtFailOver(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		c.release(c.acquire(c.h1))
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					c.release(c.acquire(c.h1))
				}
			}
		}()
		c.cell.FailOver()
		began := time.Now()
		l := c.acquire(c.h2)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the waiter has it after %v", took)
		}
		close(stop)
		c.release(l)
		<-stopped
	})
}

// A holder that is cut off while its lock is idle does not use it once another could have it, nor later.
func TestIdleLockOfOneWhoIsCutOff(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		l := c.acquire(c.h1)
		c.release(l)
		c.cell.Cut("one")
		began := time.Now()
		got := make(chan *client.Lock)
		go func() { got <- c.acquire(c.h2) }()
		for {
			within, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			again, err := c.h1.Acquire(within, api.Exclusive)
			cancel()
			if err != nil {
				break
			}
			select {
			case <-got:
				t.Fatalf("two holders, after %v", time.Since(began))
			default:
			}
			c.release(again)
			pass(10 * time.Millisecond)
		}
		if served := time.Since(began); served > api.DefaultLease {
			t.Errorf("the lock was used for %v without a word from the cell", served)
		}
		next := <-got
		if wait := time.Since(began); wait < cachedDelay {
			t.Errorf("the lock went to another after %v, with a lock-delay of %v", wait, cachedDelay)
		}
		c.cell.Heal("one")
		if again, err := c.h1.TryAcquire(t.Context(), api.Exclusive); err == nil {
			t.Errorf("two holders: tokens %d and %d", again.Token(), next.Token())
		}
		c.release(next)
	})
}

// The session may end while the lock is idle.
func TestIdleLockOfASessionThatIsEnded(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		c.release(c.acquire(c.h1))
		if err := c.two.EndSession(t.Context(), c.one.Session(), "a test"); err != nil {
			t.Fatal(err)
		}
		next := c.acquire(c.h2)
		if _, err := c.h1.Acquire(t.Context(), api.Exclusive); !errors.Is(err, api.SessionExpired) {
			t.Errorf("%v", err)
		}
		c.release(next)
	})
}

// The context of a lock that was kept ends in time, as that of any lock.
func TestUseOfAKeptLockEndsInTime(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		c.release(c.acquire(c.h1))
		l := c.acquire(c.h1)
		c.cell.Cut("one")
		began := time.Now()
		got := make(chan *client.Lock)
		go func() { got <- c.acquire(c.h2) }()
		select {
		case <-l.Context().Done():
		case next := <-got:
			t.Fatalf("two holders after %v: tokens %d and %d", time.Since(began), l.Token(), next.Token())
		}
		c.release(<-got)
		c.cell.Heal("one")
	})
}

// After jeopardy the cell is asked, although the session and its lock have outlived it.
func TestIdleLockAfterJeopardy(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		jeopardies := func() uint64 { return c.one.Stats().Jeopardies }
		l := c.acquire(c.h1)
		c.cell.Cut("one")
		for jeopardies() == 0 {
			pass(10 * time.Millisecond)
			if l.Err() == nil && c.one.Left() < 50*time.Millisecond {
				c.release(l)
				break
			}
		}
		for jeopardies() == 0 {
			pass(10 * time.Millisecond)
			c.one.State()
		}
		c.cell.Heal("one")
		for c.one.State() != session.Safe {
			pass(10 * time.Millisecond)
		}
		calls := c.one.Stats().Attempts
		c.release(c.acquire(c.h1))
		if c.one.Stats().Attempts == calls {
			t.Error("a lock that was kept through jeopardy was had without a call")
		}
	})
}
