package client

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// renewal is one Renew in the background, and what its functions saw.
type renewal struct {
	sessions []api.SessionID // in which the first function was called
	ended    []error         // the causes of their contexts, as seen by the second
	overlaps int             // times that the first was called while the client before was not closed
	before   *Client
	stop     context.CancelFunc
	done     chan error
}

// renew starts Renew with a function that returns and one that blocks. In a
// bubble what it notes can be read after synctest.Wait.
func (f *fake) renew(cfg Config) *renewal {
	r := &renewal{done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(f.t.Context())
	r.stop = cancel
	register := func(ctx context.Context, c *Client) error {
		if r.before != nil {
			select {
			case <-r.before.stopNotifier:
			default:
				r.overlaps++
			}
		}
		r.before = c
		r.sessions = append(r.sessions, c.Session())
		_, err := c.Open(ctx, "/ls/foo/x", OpenOptions{Write: true, Create: File})
		return err
	}
	block := func(ctx context.Context, _ *Client) error {
		<-ctx.Done()
		r.ended = append(r.ended, context.Cause(ctx))
		return ctx.Err()
	}
	go func() { r.done <- Renew(ctx, cfg, register, block) }()
	return r
}

// Chubby §2.8: a session that is lost, because no master was heard of or because
// the cell says so, is followed by another, in which everything is made again.
func TestRenew(t *testing.T) {
	for _, lost := range []struct {
		cause Cause
		lose  func(f *fake)
	}{
		{GraceOver, func(f *fake) {
			f.cut(addresses()...)
			time.Sleep(2 * time.Minute)
			f.heal()
		}},
		{EndedByCell, func(f *fake) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, s := range f.sessions {
				if !s.ended {
					s.doom()
				}
			}
		}},
	} {
		inBubble(t, func(t *testing.T, f *fake) {
			r := f.renew(f.config())
			time.Sleep(time.Second)
			for want := 1; want <= 3; want++ {
				synctest.Wait()
				if len(r.sessions) != want || len(r.ended) != want-1 || r.overlaps != 0 {
					t.Fatalf("%v: sessions %v, ended %v, %d overlaps, want %d sessions", lost.cause, r.sessions, r.ended, r.overlaps, want)
				}
				if want > 1 && (!errors.Is(r.ended[want-2], lost.cause) || !errors.Is(r.ended[want-2], api.SessionExpired)) {
					t.Errorf("the context ended with %v, want %v", r.ended[want-2], lost.cause)
				}
				if want < 3 {
					lost.lose(f)
					time.Sleep(2 * time.Second)
				}
			}
			if slices.Sort(r.sessions); len(slices.Compact(r.sessions)) != 3 || len(f.heard("Open")) != 3 {
				t.Errorf("sessions %v, %d Opens", r.sessions, len(f.heard("Open")))
			}
			before := len(f.heard("EndSession"))
			r.stop()
			if err := <-r.done; !errors.Is(err, context.Canceled) || !errors.Is(err, api.Cancelled) {
				t.Errorf("after the end of its context: %v", err)
			}
			if n := len(f.heard("EndSession")); n != before+1 {
				t.Errorf("%d sessions were ended at the cell, want 1", n-before)
			}
		})
	}
}

// An error of a function is the error of Renew, and the session is closed; one
// that comes with the end of the session is not.
func TestRenewError(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		own := errors.New("the port is taken")
		calls := 0
		err := Renew(t.Context(), f.config(), func(ctx context.Context, c *Client) error {
			if calls++; calls == 1 {
				c.session.endSession(EndedByCell, "as a test")
				return own
			}
			return own
		}, func(context.Context, *Client) error {
			t.Error("called after an error")
			return nil
		})
		if !errors.Is(err, own) || calls != 2 || len(f.heard("EndSession")) != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
		cfg := f.config()
		cfg.Cell = "bar"
		wants(t, "a server of another cell", Renew(t.Context(), cfg), api.WrongCell)
		cfg.Lease = time.Nanosecond
		wants(t, "a faulty configuration", Renew(t.Context(), cfg), api.InvalidArgument)
	})
}

// The end of the context ends the search for a master, before the first session
// and after it; and work that goes on after the functions have returned.
func TestRenewStopped(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cut(addresses()...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := Renew(ctx, f.config(), func(context.Context, *Client) error { t.Error("called without a session"); return nil })
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, api.Unavailable) || time.Since(began) != time.Minute {
			t.Errorf("without a master: %v after %v", err, time.Since(began))
		}

		f.heal()
		r := f.renew(f.config())
		time.Sleep(time.Second)
		f.cut(addresses()...)
		time.Sleep(5 * time.Minute)
		r.stop()
		if err := <-r.done; !errors.Is(err, context.Canceled) || len(r.sessions) != 1 || len(r.ended) != 1 {
			t.Errorf("in the search after the first session: %v, sessions %v", err, r.sessions)
		}

		f.heal()
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var within context.Context
		err = Renew(ctx, f.config(), func(ctx context.Context, _ *Client) error { within = ctx; return nil })
		if !errors.Is(err, api.DeadlineExceeded) || !errors.Is(context.Cause(within), context.DeadlineExceeded) {
			t.Errorf("%v, and its function's context: %v", err, context.Cause(within))
		}
	})
}

// A session that is refused for want of a quota is asked for again after the loss of
// one, which may count until the cell has ended it, and not for ever; never the first.
func TestRenewRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		refuse := func(code api.Code) {
			f.on("CreateSession", fail(api.Errorf(code, "refused by a test")))
		}
		refuse(api.QuotaExceeded)
		began := time.Now()
		bounded := bounded(t, time.Hour)
		err := Renew(bounded, f.config(), func(context.Context, *Client) error { t.Error("called without a session"); return nil })
		if !errors.Is(err, api.QuotaExceeded) || time.Since(began) > time.Second {
			t.Errorf("the first session: %v after %v", err, time.Since(began))
		}

		f.script(nil)
		r := f.renew(f.config())
		synctest.Wait()
		refuse(api.QuotaExceeded)
		r.before.session.endSession(EndedByCell, "as a test")
		time.Sleep(time.Minute)
		f.script(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(r.sessions) != 2 {
			t.Fatalf("when the quota has room again: sessions %v", r.sessions)
		}
		refuse(api.QuotaExceeded)
		began = time.Now()
		r.before.session.endSession(EndedByCell, "as a test")
		time.AfterFunc(2*maxQuotaWait, r.stop)
		if err := <-r.done; errors.Is(err, context.Canceled) || !errors.Is(err, api.QuotaExceeded) || time.Since(began) < maxQuotaWait || time.Since(began) > maxQuotaWait+maxCloseTime+time.Second {
			t.Errorf("when it never has: %v after %v", err, time.Since(began))
		}

		f.script(nil)
		r = f.renew(f.config())
		synctest.Wait()
		refuse(api.QuotaExceeded)
		r.before.session.endSession(EndedByCell, "as a test")
		time.Sleep(time.Minute)
		r.stop()
		if err := <-r.done; !errors.Is(err, context.Canceled) || !errors.Is(err, api.QuotaExceeded) {
			t.Errorf("given up meanwhile: %v", err)
		}

		f.script(nil)
		r = f.renew(f.config())
		synctest.Wait()
		refuse(api.PermissionDenied)
		r.before.session.endSession(EndedByCell, "as a test")
		wants(t, "refused for good", <-r.done, api.PermissionDenied)
	})
}

// Renew logs that it waits for a function which goes on after the end of its context, and nothing of one that returns soon.
func TestRenewLogsWhoDoesNotReturn(t *testing.T) {
	for took, logged := range map[time.Duration]bool{tooLong + time.Second: true, tooLong - time.Second: false} {
		inBubble(t, func(t *testing.T, f *fake) {
			var log strings.Builder
			cfg := f.config()
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- Renew(ctx, cfg, func(ctx context.Context, _ *Client) error {
					<-ctx.Done()
					time.Sleep(took)
					return ctx.Err()
				})
			}()
			time.Sleep(time.Second)
			cancel()
			<-done
			synctest.Wait() // what logs is a goroutine of its own
			if is := strings.Contains(log.String(), "has not returned"); is != logged {
				t.Errorf("a function that took %v longer: %q", took, log.String())
			}
		})
	}
}

// jumping gives a Config a clock that jump puts ahead of the bubble's.
func (f *fake) jumping(cfg *Config) (jump func(ahead time.Duration)) {
	var ahead atomic.Int64
	cfg.Clock = func() session.Instant { return session.Instant(time.Since(f.began)).Add(time.Duration(ahead.Load())) }
	return func(d time.Duration) { ahead.Store(int64(d)) }
}

// A process that was stopped for longer than lease and grace, or a machine that
// slept while Go's timers slept with it, must not use its session: the clock is
// looked at before every call, and nothing that arrives late revives it.
func TestClockJump(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		jump := f.jumping(&cfg)
		c := f.client(cfg)
		h := lockable(t, c, 0)
		l := acquired(t, h)
		time.Sleep(time.Second)
		jump(20 * time.Second)
		wants(t, "the lock right after the jump", l.Err(), LeaseNearEnd)
		if c.State() != session.Jeopardy {
			t.Errorf("state %v", c.State())
		}
		jump(100 * time.Second)
		// The first to look is the reply that comes too late.
		c.session.applyGrant(c.session.clock(), session.Grant{Epoch: 99, Number: 1, Lease: time.Minute})
		before := len(f.heard("SetContents"))
		if _, err := h.SetContents(t.Context(), nil); !errors.Is(err, GraceOver) || len(f.heard("SetContents")) != before {
			t.Errorf("a call right after the jump: %v", err)
		}
		if c.State() != session.Gone {
			t.Errorf("a late grant revived the session")
		}
	})
}

// A call that starts after a pause that outlasted the lease is not sent before
// the session is safe again, although nobody has noticed the pause yet.
func TestCallAfterPause(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		jump := f.jumping(&cfg)
		c := f.client(cfg)
		h := lockable(t, c, 0)
		f.script(func(s seen) verb {
			if s.method == "SetContents" && c.State() != session.Safe {
				t.Errorf("a write was sent while the session was not safe")
			}
			return nil
		})
		jump(20 * time.Second)
		noError(t, second(h.SetContents(t.Context(), nil)))
	})
}

// The loop that owns the timers finds out about a jump by itself.
func TestClockJumpUnasked(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		jump := f.jumping(&cfg)
		c := f.client(cfg)
		h := opened(t, c, "/ls/foo/x", OpenOptions{Write: true, Create: File, LockDelay: time.Second})
		l := acquired(t, h)
		time.Sleep(time.Second)
		jump(20 * time.Second)
		began := time.Now()
		<-l.Context().Done()
		if d := time.Since(began); d > maxTickHolding {
			t.Errorf("noticed after %v", d)
		}
	})
}
