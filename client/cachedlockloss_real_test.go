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
	"github.com/chubbylock/chubby/session"
)

// An idle lock that is taken away is not used again.
func TestIdleLockIsTakenAway(t *testing.T) {
	withCachers(t, 1, func(t *testing.T, c *cachers) {
		l := c.acquire(c.h1)
		c.release(l)
		must(t, c.two.BreakLock(t.Context(), "/ls/local/lock", "a test", false))
		pass(time.Second) // the acknowledgement needs no owner
		other := c.acquire(c.h2)
		wants(t, "two holders, or", second(c.h1.Acquire(bounded(t, time.Second), api.Exclusive)), api.DeadlineExceeded)
		c.release(other)
	})
}

// After a fail-over nothing idle is relied on: who waits at the new master before it knows of the
// holder gets the lock.
func TestIdleLockAtFailOver(t *testing.T) {
	withCachers(t, 3, func(t *testing.T, c *cachers) {
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
		wants(t, "two holders, or", second(c.h1.Acquire(bounded(t, time.Second), api.Exclusive)), api.DeadlineExceeded)
		c.release(next)
	})
}

// One who uses its lock again and again hears of those who wait at a new master.
func TestLockInUseAtFailOver(t *testing.T) {
	withCachers(t, 3, func(t *testing.T, c *cachers) {
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
	withCachers(t, 1, func(t *testing.T, c *cachers) {
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
	withCachers(t, 1, func(t *testing.T, c *cachers) {
		c.release(c.acquire(c.h1))
		must(t, c.two.EndSession(t.Context(), c.one.Session(), "a test"))
		next := c.acquire(c.h2)
		wants(t, "Acquire", second(c.h1.Acquire(t.Context(), api.Exclusive)), api.SessionExpired)
		c.release(next)
	})
}

// The context of a lock that was kept ends in time, as that of any lock.
func TestUseOfAKeptLockEndsInTime(t *testing.T) {
	withCachers(t, 1, func(t *testing.T, c *cachers) {
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
	withCachers(t, 1, func(t *testing.T, c *cachers) {
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

// tryAcquire tries the lock once, and says how long that took.
func (c *cachers) tryAcquire(h *client.Handle) (*client.Lock, time.Duration, error) {
	began := time.Now()
	l, err := h.TryAcquire(c.t.Context(), api.Exclusive)
	return l, time.Since(began), err
}

// TryAcquire gets a lock that is kept and not used, also of several readers.
func TestTryAcquireGetsAnIdleLock(t *testing.T) {
	withCachers(t, 1, func(t *testing.T, c *cachers) {
		for range 5 {
			l := c.acquire(c.h1)
			c.release(l)
			got, took, err := c.tryAcquire(c.h2)
			if err != nil || took > time.Second || got.Token() <= l.Token() {
				t.Fatalf("%v, after %v", err, took)
			}
			c.release(got)
		}
		_, h3 := c.open("three")
		for _, h := range []*client.Handle{c.h1, c.h2} {
			l := ok(h.Acquire(t.Context(), api.Shared))(t)
			c.release(l)
		}
		got, took, err := c.tryAcquire(h3)
		if err != nil || took > time.Second {
			t.Fatalf("%v, after %v", err, took)
		}
		c.release(got)
	})
}

// TryAcquire is refused soon while the lock is used, and by the one that has it, and once only it waits for one
// who does not answer.
func TestTryAcquireOfAKeptLockIsRefusedSoon(t *testing.T) {
	withCachers(t, 1, func(t *testing.T, c *cachers) {
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
	withCachers(t, 1, func(t *testing.T, c *cachers) {
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
	withCachers(t, 1, func(t *testing.T, c *cachers) {
		l := c.acquire(c.h1)
		wants(t, "its lock is used", c.h2.Delete(t.Context()), api.LockHeld)
		c.release(l)
		c.release(c.acquire(c.h1))
		wants(t, "its lock is not used", c.h2.Delete(t.Context()), nil)
		wants(t, "after the deletion", second(c.h1.Acquire(t.Context(), api.Exclusive)), api.HandleClosed)
	})
}

// TestNobodyWaitsForAHandleThatCachesNothing has a session read a file, and be cut off. A writer waits
// for its cache, unless it has read through a handle with NoCache.
func TestNobodyWaitsForAHandleThatCachesNothing(t *testing.T) {
	for _, noCache := range []bool{false, true} {
		celltest.Run(t, 1, func(t *testing.T, cell *celltest.Cell) {
			reader, writer := cell.Client("reader"), cell.Client("writer")
			for _, path := range []string{"/ls/local/f", "/ls/local/beside"} {
				must(t, second(writer.Put(t.Context(), path, []byte("1"))))
			}
			h := opened(t, reader, "/ls/local/f", client.OpenOptions{Read: true, NoCache: noCache})
			if _, err := h.ReadDir(t.Context()); api.CodeOf(err) != api.NotDirectory {
				t.Error(err)
			}
			for range 2 {
				if text, _, err := h.Contents(t.Context()); err != nil || string(text) != "1" {
					t.Fatalf("%q, %v", text, err)
				}
			}
			if saved := reader.Stats().Cache.Hits > 0; saved == noCache {
				t.Errorf("NoCache is %v, and the cache has answered a read: %v", noCache, saved)
			}
			for range 2 { // so that its cache has a lease: the second is answered by it
				if _, _, err := reader.Get(t.Context(), "/ls/local/beside"); err != nil {
					t.Fatal(err)
				}
			}
			cell.Cut("reader")
			began := cell.ClockOf("writer")()
			must(t, second(writer.Put(t.Context(), "/ls/local/f", []byte("2"))))
			if waited := cell.ClockOf("writer")().Sub(began); (waited > time.Second) == noCache {
				t.Errorf("NoCache is %v, and the write took %v", noCache, waited)
			}
			cell.Heal("reader")
			if text, _, err := h.Contents(t.Context()); err != nil || string(text) != "2" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// TestHandleWithoutACacheBesideOneWithACache reads a file through both, while others lock and write it: the one asks the
// cell each time, and shows the lock's generation, and what it reads is not kept for the other.
func TestHandleWithoutACacheBesideOneWithACache(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, cell *celltest.Cell) {
		c := cell.Client("one")
		open := func(o client.OpenOptions) *client.Handle {
			return opened(t, c, "/ls/local/f", o)
		}
		cached := open(client.OpenOptions{Read: true, Write: true, Create: client.File})
		asking := open(client.OpenOptions{Read: true, NoCache: true})
		for range 3 {
			l := acquired(t, cached)
			if stat, err := asking.Stat(t.Context()); err != nil || stat.Lock != l.Sequencer().Generation {
				t.Errorf("generation %d of the lock is shown as %d, %v", l.Sequencer().Generation, stat.Lock, err)
			}
			if stat, err := cached.Stat(t.Context()); err != nil || stat.Lock != 0 {
				t.Errorf("a handle that caches shows the lock's generation: %d, %v", stat.Lock, err)
			}
			must(t, l.Release(t.Context()))
		}
		before := c.Stats().Cache
		must(t, asking.Close(t.Context()))
		again := open(client.OpenOptions{Read: true, NoCache: true})
		if _, _, err := again.Contents(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := c.Stats().Cache; after.Hits != before.Hits {
			t.Errorf("a handle with NoCache was answered by the cache: %d hits, then %d", before.Hits, after.Hits)
		}
	})
}
