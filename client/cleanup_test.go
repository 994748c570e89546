package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

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
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				h := lockable(t, c, 0)
				l, err := h.Acquire(t.Context(), api.Exclusive)
				if err != nil {
					t.Fatal(err)
				}
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
		})
	}
}

// While the cell is away, what is given back is given up after CleanupTime; and
// only one call waits for so long, however many there are.
func TestPartingFromACellThatIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := lockable(t, c, 0)
		l, err := h.Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
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
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		first, second := lockable(t, c, 0), lockable(t, c, 0)
		f.cut(addresses()...)
		synctest.Wait()
		brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
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
		f.heal()
		closeClient(t, c)
	})
}

// A deadline that passes during a call says that its caller did not want to wait, and
// nothing of the cell: another call whose context has been cancelled has its time.
func TestPartingAfterAShortDeadline(t *testing.T) {
	for range 8 { // of two timers at one moment either may be first
		inBubble(t, func(t *testing.T, f *fake) {
			c := f.client(f.config())
			first, second := lockable(t, c, 0), lockable(t, c, 0)
			f.script(func(s seen) verb {
				if s.method == "CloseHandle" && s.nth == 1 {
					return hang
				}
				return nil
			})
			brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if err := first.Close(brief); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with a deadline: %v", err)
			}
			if err := second.Close(ended(t, false)); err != nil || f.state().handles != 0 {
				t.Errorf("cancelled: %v; handles %d", err, f.state().handles)
			}
			closeClient(t, c)
		})
	}
}

// When the lease has run out, Close does not wait for the cell for long.
func TestCloseAfterTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		f.cut(addresses()...)
		time.Sleep(20 * time.Second)
		began := time.Now()
		if err := c.Close(t.Context()); !errors.Is(err, api.Unavailable) || time.Since(began) != CleanupTime {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
