package client

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// A process that was stopped for longer than lease and grace, or a machine that
// slept while Go's timers slept with it, must not use its session: the clock is
// looked at before every call, and nothing that arrives late revives it.
func TestClockJump(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var mu sync.Mutex
		var jump time.Duration
		cfg := f.config()
		cfg.Clock = func() session.Instant {
			mu.Lock()
			defer mu.Unlock()
			return session.Instant(time.Since(f.began) + jump)
		}
		c := f.client(cfg)
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		l, err := h.Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		mu.Lock()
		jump = 20 * time.Second
		mu.Unlock()
		if err := l.Err(); !errors.Is(err, LeaseNearEnd) {
			t.Errorf("the lock right after the jump: %v", err)
		}
		if c.State() != session.Jeopardy {
			t.Errorf("state %v", c.State())
		}
		mu.Lock()
		jump = 100 * time.Second
		mu.Unlock()
		// The first to look is the reply that comes too late.
		c.session.applyGrant(c.session.clock(), session.Grant{Epoch: 99, Number: 1, Lease: time.Minute})
		before := len(f.heard("SetContents"))
		if _, err := h.SetContents(t.Context(), nil); !errors.Is(err, GraceOver) || len(f.heard("SetContents")) != before {
			t.Errorf("a call right after the jump: %v", err)
		}
		if c.State() != session.Gone {
			t.Errorf("a late grant revived the session")
		}
		closeClient(t, c)
	})
}

// A call that starts after a pause that outlasted the lease is not sent before
// the session is safe again, although nobody has noticed the pause yet.
func TestCallAfterPause(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var mu sync.Mutex
		var jump time.Duration
		cfg := f.config()
		cfg.Clock = func() session.Instant {
			mu.Lock()
			defer mu.Unlock()
			return session.Instant(time.Since(f.began) + jump)
		}
		c := f.client(cfg)
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			if s.method == "SetContents" && c.State() != session.Safe {
				t.Errorf("a write was sent while the session was not safe")
			}
			return nil
		})
		mu.Lock()
		jump = 20 * time.Second
		mu.Unlock()
		if _, err := h.SetContents(t.Context(), nil); err != nil {
			t.Error(err)
		}
		closeClient(t, c)
	})
}

// The loop that owns the timers finds out about a jump by itself.
func TestClockJumpUnasked(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var mu sync.Mutex
		var jump time.Duration
		cfg := f.config()
		cfg.Clock = func() session.Instant {
			mu.Lock()
			defer mu.Unlock()
			return session.Instant(time.Since(f.began) + jump)
		}
		c := f.client(cfg)
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File, LockDelay: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l, err := h.Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		mu.Lock()
		jump = 20 * time.Second
		mu.Unlock()
		began := time.Now()
		<-l.Context().Done()
		if d := time.Since(began); d > maxTickHolding {
			t.Errorf("noticed after %v", d)
		}
		closeClient(t, c)
	})
}
