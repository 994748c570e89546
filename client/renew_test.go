package client

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
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
		if err := Renew(t.Context(), cfg); !errors.Is(err, api.WrongCell) {
			t.Errorf("a server of another cell: %v", err)
		}
		cfg.Lease = time.Nanosecond
		if err := Renew(t.Context(), cfg); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("a faulty configuration: %v", err)
		}
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
			f.script(func(s seen) verb {
				if s.method == "CreateSession" {
					return fail(api.Errorf(code, "refused by a test"))
				}
				return nil
			})
		}
		refuse(api.QuotaExceeded)
		began := time.Now()
		bounded, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
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
		if err := <-r.done; !errors.Is(err, api.PermissionDenied) {
			t.Errorf("refused for good: %v", err)
		}
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
