package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// A mutation whose caller leaves is reported as Uncertain, is settled through
// Cancel, and no later mutation is sent before: it could not take effect after
// one that was made later.
func TestAbandoned(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		f.script(func(s seen) verb {
			switch {
			case s.method == "SetContents" && s.nth == 1:
				return func(_ context.Context, next func() (any, error)) (any, error) {
					time.Sleep(3 * time.Second) // it is on its way for long
					return next()
				}
			case s.method == "Cancel" && s.nth <= 2:
				return fail(api.Unavailable)
			}
			return nil
		})
		_, err := h.SetContents(bounded(t, time.Second), []byte("old"))
		if !errors.Is(err, api.Uncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("abandoned: %v", err)
		}
		noError(t, second(h.SetContents(t.Context(), []byte("new"))))
		cancels, writes := f.heard("Cancel"), f.heard("SetContents")
		if len(cancels) != 3 || len(writes) != 2 || writes[1].at < cancels[2].at {
			t.Errorf("cancels %v, writes %v", cancels, writes)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s := f.state(); s.contents != "new" || s.writes != 1 {
			t.Errorf("contents %q after %d writes", s.contents, s.writes)
		}
		settled(t, c)
	})
}

// A broken connection says nothing of what had been sent over it.
func TestBrokenAndAbandoned(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		f.on("SetContents", then(func() { f.cut(addresses()...) }))
		ctx := bounded(t, time.Second)
		if _, err := h.SetContents(ctx, nil); !errors.Is(err, api.Uncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		f.heal()
		time.Sleep(2 * time.Second)
		if n, open := len(f.heard("Cancel")), c.numbers.wireMutation(0).GetOutstanding(); n != 1 || len(open) != 0 {
			t.Errorf("%d cancels, outstanding %v", n, open)
		}
	})
}

// An Open that is left after it was done leaves no handle behind.
func TestAbandonedOpen(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.onFirst("Open", mute)
		wants(t, "Open", second(c.Open(bounded(t, time.Second), "/ls/foo/x", OpenOptions{Read: true, Create: File})), api.Uncertain)
		time.Sleep(time.Second)
		synctest.Wait()
		if s := f.state(); s.handles != 0 || len(f.heard("CloseHandle")) != 1 || len(c.handles.byID) != 0 {
			t.Errorf("handles at the cell %v, here %v", s.handles, c.handles.byID)
		}
		settled(t, c)
	})
}

// Close and Release are carried through also if their callers left before they
// could be sent, as the cell could not be reached: at a deadline, or cancelled
// before the call.
func TestUnsentCloseAndRelease(t *testing.T) {
	for name, cancelled := range map[string]bool{"deadline": false, "cancelled": true} {
		runInSession(t, name, func(t *testing.T, f *fake, c *Client) {
			h := lockable(t, c, 0)
			l := acquired(t, h)
			f.cut(addresses()...)
			time.Sleep(time.Second)
			leave := func(what string, f func(context.Context) error) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if cancelled {
					cancel()
				}
				wants(t, what, f(ctx), api.Uncertain)
			}
			leave("Release", l.Release)
			f.heal()
			bound, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			again, err := h.Acquire(bound, api.Exclusive) // not before the first is released
			if err != nil || again.Token() <= l.Token() || f.state().held != again.Token() {
				t.Fatalf("again: %v; held %d", err, f.state().held)
			}
			f.cut(addresses()...)
			time.Sleep(time.Second)
			leave("Close", h.Close)
			f.heal()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if s := f.state(); s.held != 0 || s.handles != 0 {
				t.Errorf("held %d, handles %d", s.held, s.handles)
			}
			settled(t, c)
		})
	}
}

// Close and Release are carried through also if their callers left without an answer, or
// when every attempt had been refused for now, as while there is no master to take them.
func TestRefusedCloseAndReleaseAreCarriedThrough(t *testing.T) {
	for name, answer := range map[string]verb{
		"no master":  fail(api.Errorf(api.Unavailable, "it cannot serve yet")),
		"not master": fail(api.Errorf(api.NotMaster, "it is not the master")),
		"no answer":  hang,
	} {
		runInSession(t, name, func(t *testing.T, f *fake, c *Client) {
			h := lockable(t, c, 0)
			l := acquired(t, h)
			leave := func(what string, call func(context.Context) error) {
				f.when(func(s seen) bool { return s.method == "CloseHandle" || s.method == "Release" }, answer)
				wants(t, what, call(bounded(t, time.Second)), api.Uncertain)
				f.script(nil)
				time.Sleep(defaultCallTimeout + 2*time.Second)
				synctest.Wait()
			}
			leave("Release", l.Release)
			if held := f.state().held; held != 0 {
				t.Errorf("the lock is still held: %d", held)
			}
			leave("Close", h.Close)
			if handles := f.state().handles; handles != 0 {
				t.Errorf("%d handles are still open", handles)
			}
			if n := len(f.heard("Cancel")); n != 0 {
				t.Errorf("%d calls of Cancel", n)
			}
			settled(t, c)
		})
	}
}

// ended returns a context that has been cancelled, as that of a program that got a
// signal, or whose deadline has passed.
func ended(t *testing.T, byDeadline bool) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if byDeadline {
		<-ctx.Done()
	}
	return ctx
}

// A program that is shut down in an orderly way gives back what it holds, although
// the context that it passes has ended by then.
func TestPartingWithEndedContext(t *testing.T) {
	for name, byDeadline := range map[string]bool{"cancelled": false, "deadline": true} {
		runInSession(t, name, func(t *testing.T, f *fake, c *Client) {
			h := lockable(t, c, 0)
			l := acquired(t, h)
			over := ended(t, byDeadline)
			if err := l.Release(over); err != nil || f.state().held != 0 {
				t.Errorf("Release: %v; held %d", err, f.state().held)
			}
			if err := h.Close(over); err != nil || f.state().handles != 0 {
				t.Errorf("Close of the handle: %v; handles %v", err, f.state().handles)
			}
			if err := c.Close(over); err != nil || len(f.heard("EndSession")) != 1 {
				t.Errorf("Close: %v; %d calls", err, len(f.heard("EndSession")))
			}
		})
	}
}

// While the cell is away, what is given back is given up after CleanupTime; and
// only one call waits for so long, however many there are.
func TestPartingFromACellThatIsAway(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		l := acquired(t, h)
		f.cut(addresses()...)
		synctest.Wait()
		took := func(what string, most, least time.Duration, ctx context.Context, call func(context.Context) error) {
			began := time.Now()
			err := call(ctx)
			if d := time.Since(began); err == nil || !errors.Is(err, ctx.Err()) || d > most || d < least {
				t.Errorf("%s: %v after %v, want %v to %v", what, err, d, least, most)
			}
		}
		over := ended(t, false)
		took("Release", CleanupTime, CleanupTime, over, l.Release)
		took("Close of the handle", 0, 0, over, h.Close)
		f.heal()
		time.Sleep(10 * time.Second) // the master is heard again
		if s := f.state(); s.held != 0 || s.handles != 0 {
			t.Errorf("it was not done in the background: held %d, handles %v", s.held, s.handles)
		}
		h = lockable(t, c, 0)
		f.cut(addresses()...)
		synctest.Wait()
		took("Close of the next handle", CleanupTime, CleanupTime, over, h.Close)
		took("Close of the client", CleanupTime, CleanupTime, over, c.Close)
	})
}

// A deadline that lies ahead is kept: that is for callers that do not want to wait.
// A cancellation during the call leaves it CleanupTime.
func TestPartingBeginsWithTheCancellation(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		first, second := lockable(t, c, 0), lockable(t, c, 0)
		f.cut(addresses()...)
		synctest.Wait()
		brief := bounded(t, 300*time.Millisecond)
		began := time.Now()
		if err := first.Close(brief); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 300*time.Millisecond {
			t.Errorf("with a deadline: %v after %v", err, time.Since(began))
		}
		working, stop := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, stop)
		began = time.Now()
		if err := second.Close(working); !errors.Is(err, context.Canceled) || time.Since(began) != 2*time.Second+CleanupTime {
			t.Errorf("cancelled: %v after %v", err, time.Since(began))
		}
	})
}

// A deadline that passes during a call says that its caller did not want to wait, and
// nothing of the cell: another call whose context has been cancelled has its time.
func TestPartingAfterAShortDeadline(t *testing.T) {
	for range 8 { // of two timers at one moment either may be first
		inSession(t, func(t *testing.T, f *fake, c *Client) {
			first, second := lockable(t, c, 0), lockable(t, c, 0)
			f.onFirst("CloseHandle", hang)
			wants(t, "with a deadline", first.Close(bounded(t, time.Millisecond)), context.DeadlineExceeded)
			if err := second.Close(ended(t, false)); err != nil || f.state().handles != 0 {
				t.Errorf("cancelled: %v; handles %d", err, f.state().handles)
			}
		})
	}
}

// When the lease has run out, Close does not wait for the cell for long.
func TestCloseAfterTheLease(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.cut(addresses()...)
		time.Sleep(20 * time.Second)
		began := time.Now()
		if err := c.Close(t.Context()); !errors.Is(err, api.Unavailable) || time.Since(began) != CleanupTime {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
