package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
)

// A handle that is more at the cell than open is not kept for another Open when it
// is closed: one through which a lock was asked for (Chubby §2.7), one that is bound
// to a lock, and one on which a call is under way. What had begun would go on, and
// the next owner of the handle would be told what came of it.
func TestHandleInUseIsNotKept(t *testing.T) {
	for _, test := range []struct {
		name   string
		before func(t *testing.T, h *Handle)
		closes int
	}{
		{"it was only open", func(*testing.T, *Handle) {}, 0},
		{"a lock was held through it", func(t *testing.T, h *Handle) {
			l, err := h.Acquire(t.Context(), api.Exclusive)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"it is bound", func(_ *testing.T, h *Handle) { h.boundToken = h.token }, 1},
		{"a call is under way", func(t *testing.T, h *Handle) {
			_, leave, err := h.beginCall(t.Context(), "acquire")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(leave)
		}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.cacheable, f.reusable = true, true
				c := f.client(f.config())
				h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true})
				if err != nil {
					t.Fatal(err)
				}
				test.before(t, h)
				if err := h.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := len(f.heard("CloseHandle")); n != test.closes {
					t.Errorf("%d calls of Close, want %d", n, test.closes)
				}
				closeClient(t, c)
			})
		})
	}
}

// After Close no call on the handle begins, also if it was called before.
func TestNoCallAfterClose(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cacheable, f.reusable = true, true
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			if s.method == "Acquire" {
				return hang
			}
			return nil
		})
		waiting, giveUp := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := h.Acquire(waiting, api.Exclusive)
			done <- err
		}()
		synctest.Wait()
		if err := h.Close(t.Context()); err != nil || len(f.heard("CloseHandle")) != 1 {
			t.Errorf("Close while Acquire waits: %v, %d calls", err, len(f.heard("CloseHandle")))
		}
		giveUp()
		<-done
		if _, err := h.Acquire(t.Context(), api.Exclusive); !errors.Is(err, api.HandleClosed) || len(f.heard("Acquire")) != 1 {
			t.Errorf("Acquire after Close: %v, %d calls", err, len(f.heard("Acquire")))
		}
		closeClient(t, c)
	})
}

// Handles that were kept are closed when the quota of handles is used up, and the Open is
// made again: once, since the quota may be used up without them.
func TestSparesMakeRoomInTheQuota(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := reuse(t, f)
		f.script(func(s seen) verb {
			if s.method == "Open" && f.state().handles > 0 {
				return fail(api.Errorf(api.QuotaExceeded, "too many handles"))
			}
			return nil
		})
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true})
		if err != nil || len(f.heard("CloseHandle")) != 1 {
			t.Errorf("%v; %d handles were closed", err, len(f.heard("CloseHandle")))
		}
		before := len(f.heard("Open"))
		if _, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: true}); !errors.Is(err, api.QuotaExceeded) || len(f.heard("Open")) != before+1 {
			t.Errorf("without spares: %v after %d attempts", err, len(f.heard("Open"))-before)
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
		closeClient(t, c)
	})
}
