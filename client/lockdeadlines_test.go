package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// The rule of the package: the context of a lock ends a Margin before the first
// moment at which the cell could give the lock to another, whatever was lost
// on the way. The cell's own view of that moment is the judge.
func TestLockEndsBeforeOthersCanHoldIt(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 12 * time.Second, time.Minute} {
		for _, delay := range []time.Duration{0, 10 * time.Second, time.Minute} {
			t.Run(fmt.Sprintf("lease %v, lock-delay %v", lease, delay), func(t *testing.T) {
				inBubble(t, func(t *testing.T, f *fake) {
					cfg := f.config()
					cfg.Lease, cfg.Grace = lease, 5*time.Minute
					c := f.client(cfg)
					h := lockable(t, c, delay)
					l, err := h.Acquire(t.Context(), api.Exclusive)
					if err != nil {
						t.Fatal(err)
					}
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
					closeClient(t, c)
				})
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
			switch s.method {
			case "KeepAlive":
				return hang
			case "TryAcquire":
				return after(3 * time.Second)
			}
			return nil
		})
		c := f.client(f.config())
		h := lockable(t, c, 0)
		time.Sleep(c.Left() - time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		l, err := h.TryAcquire(ctx, api.Exclusive)
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
		closeClient(t, c)
	})
}

// Without a master, the lock with the shorter lock-delay is given up first, in time,
// in whichever order they were acquired.
func TestLocksEndInTheOrderOfTheirDelays(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		ended := map[time.Duration]time.Time{}
		var mu sync.Mutex
		for _, delay := range []time.Duration{10 * time.Second, 0, 5 * time.Second} {
			l := &Lock{handle: &Handle{path: "/ls/foo/x", delay: delay}}
			l.ctx, l.cancel = context.WithCancelCause(t.Context())
			if err := c.session.trackLock(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			context.AfterFunc(l.Context(), func() {
				mu.Lock()
				defer mu.Unlock()
				ended[delay] = time.Now()
			})
		}
		f.cut(addresses()...)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		_ = c.Close(t.Context()) // nobody is there to be told
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
