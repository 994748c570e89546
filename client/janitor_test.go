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
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = h.SetContents(ctx, []byte("old"))
		if !errors.Is(err, api.Uncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("abandoned: %v", err)
		}
		if _, err := h.SetContents(t.Context(), []byte("new")); err != nil {
			t.Error(err)
		}
		cancels, writes := f.heard("Cancel"), f.heard("SetContents")
		if len(cancels) != 3 || len(writes) != 2 || writes[1].at < cancels[2].at {
			t.Errorf("cancels %v, writes %v", cancels, writes)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s := f.state(); s.contents != "new" || s.writes != 1 {
			t.Errorf("contents %q after %d writes", s.contents, s.writes)
		}
		if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 {
			t.Errorf("outstanding %v", open)
		}
		closeClient(t, c)
	})
}

// A broken connection says nothing of what had been sent over it.
func TestBrokenAndAbandoned(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			if s.method == "SetContents" {
				return func(_ context.Context, next func() (any, error)) (any, error) {
					reply, err := next()
					f.cut(addresses()...)
					return reply, err
				}
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.SetContents(ctx, nil); !errors.Is(err, api.Uncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		f.heal()
		time.Sleep(2 * time.Second)
		if n, open := len(f.heard("Cancel")), c.numbers.wireMutation(0).GetOutstanding(); n != 1 || len(open) != 0 {
			t.Errorf("%d cancels, outstanding %v", n, open)
		}
		closeClient(t, c)
	})
}

// An Open that is left after it was done leaves no handle behind.
func TestAbandonedOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		f.script(func(s seen) verb {
			if s.method == "Open" && s.nth == 1 {
				return mute
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Open(ctx, "/ls/foo/x", OpenOptions{Read: true, Create: File}); !errors.Is(err, api.Uncertain) {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := f.state(); s.handles != 0 || len(f.heard("CloseHandle")) != 1 || len(c.handles.byID) != 0 {
			t.Errorf("handles at the cell %v, here %v", s.handles, c.handles.byID)
		}
		if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 {
			t.Errorf("outstanding %v", open)
		}
		closeClient(t, c)
	})
}

// Close and Release are carried through although their callers left.
func TestAbandonedCloseAndRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		l, err := h.Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			if (s.method == "CloseHandle" || s.method == "Release") && s.nth == 1 {
				return hang
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Release(ctx); !errors.Is(err, api.Uncertain) {
			t.Errorf("Release: %v", err)
		}
		time.Sleep(time.Second)
		if f.state().held != 0 {
			t.Errorf("the lock is still held")
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); !errors.Is(err, api.Uncertain) {
			t.Errorf("Close: %v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := f.state(); s.handles != 0 || len(f.heard("Cancel")) != 0 {
			t.Errorf("handles %v, cancels %v", s.handles, f.heard("Cancel"))
		}
		closeClient(t, c)
	})
}

// Close and Release are carried through also if their callers left before they
// could be sent, as the cell could not be reached: at a deadline, or cancelled
// before the call.
func TestUnsentCloseAndRelease(t *testing.T) {
	for name, cancelled := range map[string]bool{"deadline": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				h := lockable(t, c, 0)
				l, err := h.Acquire(t.Context(), api.Exclusive)
				if err != nil {
					t.Fatal(err)
				}
				f.cut(addresses()...)
				time.Sleep(time.Second)
				leave := func(what string, f func(context.Context) error) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if cancelled {
						cancel()
					}
					if err := f(ctx); !errors.Is(err, api.Uncertain) {
						t.Errorf("%s: %v", what, err)
					}
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
				if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 {
					t.Errorf("outstanding %v", open)
				}
				closeClient(t, c)
			})
		})
	}
}

// Close and Release are carried through also if their callers left when every
// attempt had been refused for now, as while there is no master to take them.
func TestRefusedCloseAndReleaseAreCarriedThrough(t *testing.T) {
	for name, refusal := range map[string]*api.Error{
		"no master":  api.Errorf(api.Unavailable, "it cannot serve yet"),
		"not master": api.Errorf(api.NotMaster, "it is not the master"),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				h := lockable(t, c, 0)
				l, err := h.Acquire(t.Context(), api.Exclusive)
				if err != nil {
					t.Fatal(err)
				}
				refuse := func(s seen) verb {
					if s.method == "CloseHandle" || s.method == "Release" {
						return fail(refusal)
					}
					return nil
				}
				leave := func(what string, call func(context.Context) error) {
					f.script(refuse)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if err := call(ctx); !errors.Is(err, api.Uncertain) {
						t.Errorf("%s: %v", what, err)
					}
					f.script(nil)
					time.Sleep(2 * time.Second)
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
				if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 {
					t.Errorf("outstanding %v", open)
				}
				closeClient(t, c)
			})
		})
	}
}
