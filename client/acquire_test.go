package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// crowd fills the queues with requests of one session for a lock that another holds.
// end gives them up.
func crowd(t *testing.T, f *fake, c *Client, n int) (end func()) {
	t.Helper()
	holder := f.client(f.config())
	must(t, second(lockable(t, holder, 0).Acquire(t.Context(), api.Exclusive, Reason("a test"))))
	h := lockable(t, c, 0)
	waiting, giveUp := context.WithCancel(t.Context())
	done := make(chan struct{}, n)
	for range n {
		go func() {
			_, _ = h.Acquire(waiting, api.Exclusive)
			done <- struct{}{}
		}()
	}
	synctest.Wait()
	return func() {
		giveUp()
		for range n {
			<-done
		}
	}
}

// A request that never had a place says so, and who holds the lock.
func TestGivenUpInACrowd(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		end := crowd(t, f, c, maxSessionWaits)
		_, err := lockable(t, c, 0).Acquire(bounded(t, time.Minute), api.Exclusive)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.DeadlineExceeded || len(e.Holders) != 1 || !strings.Contains(e.Message, "192") {
			t.Errorf("%v", err)
		}
		end()
	})
}

// Of the requests of one session without a place one at a time tries its lock, each
// after a pause; and one that finds a place takes it.
func TestCrowdIsThrifty(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		trying, most := 0, 0
		f.on("TryAcquire", func(_ context.Context, next func() (any, error)) (any, error) {
			trying++
			most = max(most, trying)
			defer func() { trying-- }()
			time.Sleep(time.Millisecond)
			return next()
		})
		end := crowd(t, f, c, maxSessionWaits+50)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(f.heard("TryAcquire")); most != 1 || n < 50 || n > 50*20 {
			t.Errorf("%d trials, %d at once", n, most)
		}
		if n := len(f.heard("Acquire")); n != 1+maxSessionWaits {
			t.Errorf("%d requests in queues, want %d", n-1, maxSessionWaits)
		}
		end()
	})
}

// The sessions of a Cell share what its connection takes. However many requests for locks
// they have, there is room beside those that are in queues: for KeepAlives, or the
// sessions would end, and for what ends the waits. Who closes a session leaves its places.
func TestCrowdOfACell(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		holder := f.client(f.config())
		must(t, second(lockable(t, holder, 0).Acquire(t.Context(), api.Exclusive)))
		cell, clients, handles, _ := f.crowd(2)
		const places = 30 // fewer than one session may have
		cell.places = make(chan struct{}, places)
		for _, c := range clients {
			c.numbers.places = cell.places
		}
		waiting, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		for _, h := range handles {
			for range 20 {
				go func() { _, _ = h.Acquire(waiting, api.Exclusive) }()
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(f.heard("Acquire")) - 1; n != places {
			t.Errorf("%d requests in queues, want %d", n, places)
		}
		for _, c := range clients {
			noError(t, c.Err())
			closeClient(t, c)
		}
		if len(cell.places) != 0 {
			t.Errorf("%d places are taken by nobody", len(cell.places))
		}
	})
}

// A session that is lost leaves its places to the others of its Cell, also while its
// owner has not closed it: it may be long until the work that it was for has stopped.
func TestLostSessionLeavesItsPlaces(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		holder := f.client(f.config())
		must(t, second(lockable(t, holder, 0).Acquire(t.Context(), api.Exclusive)))
		cell, clients, handles, _ := f.crowd(1)
		for range 20 {
			go func() { _, _ = handles[0].Acquire(t.Context(), api.Exclusive) }()
		}
		synctest.Wait()
		if len(cell.places) != 20 {
			t.Errorf("%d places are taken", len(cell.places))
		}
		f.cut(addresses()...)
		<-clients[0].Done()
		synctest.Wait()
		if len(cell.places) != 0 {
			t.Errorf("%d places are taken by a session that is lost", len(cell.places))
		}
		closeClient(t, clients[0])
		if len(cell.places) != 0 {
			t.Errorf("%d places are taken by nobody", len(cell.places))
		}
	})
}

// A second Acquire through a handle that holds the lock is refused also where there is no
// place for another wait.
func TestOwnLockInACrowd(t *testing.T) {
	inSession(t, func(t *testing.T, _ *fake, c *Client) {
		c.numbers.places = make(chan struct{})
		h := lockable(t, c, 0)
		l := ok(h.TryAcquire(t.Context(), api.Exclusive))(t)
		wants(t, "Acquire", second(h.Acquire(bounded(t, time.Minute), api.Exclusive)), api.LockHeld)
		noError(t, l.Release(t.Context()))
	})
}

// The rule of the package: the context of a lock ends a Margin before the first
// moment at which the cell could give the lock to another, whatever was lost
// on the way. The cell's own view of that moment is the judge.
func TestLockEndsBeforeOthersCanHoldIt(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 12 * time.Second, time.Minute} {
		for _, delay := range []time.Duration{0, 10 * time.Second, time.Minute} {
			runInBubble(t, fmt.Sprintf("lease %v, lock-delay %v", lease, delay), func(t *testing.T, f *fake) {
				cfg := f.config()
				cfg.Lease, cfg.Grace = lease, 5*time.Minute
				c := f.client(cfg)
				h := lockable(t, c, delay)
				l := acquired(t, h)
				time.Sleep(lease * 3)
				if l.Err() != nil {
					t.Fatalf("lost while the cell was there: %v", l.Err())
				}
				f.cut(addresses()...)
				only := f.only()
				f.mu.Lock()
				free := only.end.Add(delay)
				f.mu.Unlock()
				until := time.Now().Add(l.ExclusiveUntil())
				<-l.Context().Done()
				now := time.Now()
				if cause := context.Cause(l.Context()); !errors.Is(cause, LeaseNearEnd) || !errors.Is(cause, api.LockLost) {
					t.Errorf("cause %v", cause)
				}
				if margin := Margin(lease, delay); free.Sub(now) < margin || until.Sub(now) != margin || until.After(free) {
					t.Errorf("ended %v before the cell could give it away, %v before the client believed so; the margin is %v",
						free.Sub(now), until.Sub(now), margin)
				}
				// And not needlessly early: 1 % of the time that the request took,
				// for the clocks, is all that it gives away.
				if early := free.Sub(until); early > (session.Due(lease)+lease+delay)/100+time.Millisecond {
					t.Errorf("%v early", early)
				}
				f.heal()
				time.Sleep(time.Second)
				if err := l.Release(t.Context()); err != nil || f.state().held != 0 {
					t.Errorf("Release once healed: %v, held %d", err, f.state().held)
				}
			})
		}
	}
}

// A lock that is granted while the session is in jeopardy is not returned
// before it is safe; one whose caller leaves meanwhile is given back.
func TestGrantInJeopardy(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		// KeepAlives are lost, calls are not.
		f.script(func(s seen) verb {
			return map[string]verb{"KeepAlive": hang, "TryAcquire": after(3 * time.Second)}[s.method]
		})
		c := f.client(f.config())
		h := lockable(t, c, 0)
		time.Sleep(c.Left() - time.Second)
		l, err := h.TryAcquire(bounded(t, 4*time.Second), api.Exclusive)
		if !errors.Is(err, context.DeadlineExceeded) || c.State() != session.Jeopardy {
			t.Errorf("in jeopardy: %v, %v", l, err)
		}
		f.script(nil)
		l, err = h.TryAcquire(t.Context(), api.Exclusive)
		if err != nil || l.Err() != nil {
			t.Errorf("once safe: %v", err)
		}
		if n := len(f.heard("Release")); n != 1 {
			t.Errorf("%d releases of the lock that was not wanted", n)
		}
	})
}

// Without a master, the lock with the shorter lock-delay is given up first, in time,
// in whichever order they were acquired.
func TestLocksEndInTheOrderOfTheirDelays(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		ended := map[time.Duration]time.Time{}
		var mu sync.Mutex
		for _, delay := range []time.Duration{10 * time.Second, 0, 5 * time.Second} {
			l := &Lock{handle: &Handle{path: "/ls/foo/x", openedFor: openKey{delay: delay}}}
			l.ctx, l.cancel = context.WithCancelCause(t.Context())
			must(t, c.session.trackLock(t.Context(), l))
			context.AfterFunc(l.Context(), func() {
				mu.Lock()
				defer mu.Unlock()
				ended[delay] = time.Now()
			})
		}
		f.cut(addresses()...)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if a, b, c := ended[0], ended[5*time.Second], ended[10*time.Second]; a.IsZero() || b.Sub(a) < 4*time.Second || c.Sub(b) < 4*time.Second {
			t.Errorf("the contexts ended at %v, %v and %v", a, b, c)
		}
	})
}

func TestMargin(t *testing.T) {
	for _, c := range []struct{ lease, delay, want time.Duration }{
		{12 * time.Second, 10 * time.Second, time.Second},
		{12 * time.Second, 0, time.Second},
		{time.Second, 0, time.Second / 12},
		{time.Second, 5 * time.Second, 500 * time.Millisecond},
		{time.Minute, time.Minute, time.Second},
	} {
		if got := Margin(c.lease, c.delay); got != c.want {
			t.Errorf("Margin(%v, %v) = %v, want %v", c.lease, c.delay, got, c.want)
		}
	}
}

// A master of an older version does not know what a transaction is (the fake is one). It is asked once, and the error
// says what to do.
func TestTxnAtAnOlderMaster(t *testing.T) {
	inSession(t, func(t *testing.T, _ *fake, c *Client) {
		began := time.Now()
		_, err := c.Txn().Put("/ls/foo/a", nil).Put("/ls/foo/b", nil).Commit(t.Context())
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.InvalidArgument || e.Op != "commit" || e.Path != "/ls/foo/a" || !errors.Is(err, OlderMaster) || !strings.Contains(e.Message, "the master of cell foo, a, version 0.1.0, does not know Txn yet") || !strings.Contains(e.Message, "upgrade the replicas") || time.Since(began) > time.Second {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
	})
}
