package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Chubby §2.6: Poison fails what is outstanding and what comes later, at once,
// and closes nothing. What was under way is settled.
func TestPoison(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, other := lockable(t, c, 0), lockable(t, c, 0)
		f.mu.Lock()
		f.holder = &fakeHold{gen: 50, session: &fakeSession{id: 77}}
		f.mu.Unlock()
		f.script(func(s seen) verb {
			if s.method == "SetContents" || s.method == "GetStat" {
				return hang
			}
			return nil
		})
		failed := make(chan error)
		for _, operation := range []func() error{
			func() error { _, err := h.Acquire(t.Context(), api.Exclusive); return err },
			func() error { _, err := h.SetContents(t.Context(), nil); return err },
			func() error { _, err := h.Stat(t.Context()); return err },
		} {
			go func() { failed <- operation() }()
		}
		time.Sleep(time.Second)
		began := time.Now()
		h.Poison()
		for range 3 {
			if err := <-failed; !errors.Is(err, api.HandleClosed) || !errors.Is(err, Poisoned) || time.Since(began) > 10*time.Millisecond {
				t.Errorf("outstanding: %v after %v", err, time.Since(began))
			}
		}
		f.script(nil)
		for _, err := range []error{
			func() error { _, err := h.Stat(t.Context()); return err }(),
			h.Delete(t.Context()),
			func() error { _, err := h.TryAcquire(t.Context(), api.Shared); return err }(),
			func() error { _, err := h.Open(t.Context(), "y", OpenOptions{Read: true}); return err }(),
		} {
			if !errors.Is(err, api.HandleClosed) || !errors.Is(err, Poisoned) {
				t.Errorf("later: %v", err)
			}
		}
		if _, err := other.Stat(t.Context()); err != nil || len(f.only().handles) != 2 {
			t.Errorf("another handle: %v; %d are open", err, len(f.only().handles))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n, open := len(f.heard("Cancel")), c.numbers.wireMutation(0).GetOutstanding(); n != 2 || len(open) != 0 {
			t.Errorf("%d withdrawn, outstanding %v", n, open)
		}
		h.Poison() // again
		if err := h.Close(t.Context()); err != nil || len(f.only().handles) != 1 {
			t.Errorf("Close: %v; %d are open", err, len(f.only().handles))
		}
		closeClient(t, c)
	})
}

// The lock of a poisoned handle stays held, and can be released.
func TestPoisonKeepsTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		l.handle.Poison()
		time.Sleep(time.Minute)
		if l.Err() != nil || f.state().held == 0 {
			t.Errorf("%v, held %d", l.Err(), f.state().held)
		}
		if err := l.Release(t.Context()); err != nil || f.state().held != 0 {
			t.Errorf("Release: %v, held %d", err, f.state().held)
		}
		closeClient(t, c)
	})
}

// A lock that is granted to a handle that was poisoned meanwhile is not handed
// out, and is given back.
func TestGrantToPoisoned(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := lockable(t, c, 0)
		f.script(func(s seen) verb {
			if s.method != "TryAcquire" {
				return nil
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				reply, err := next()
				h.Poison()
				return reply, err
			}
		})
		if l, err := h.TryAcquire(t.Context(), api.Exclusive); l != nil || !errors.Is(err, Poisoned) || !errors.Is(err, api.HandleClosed) {
			t.Errorf("%v, %v", l, err)
		}
		time.Sleep(time.Second)
		if f.state().held != 0 {
			t.Errorf("held %d", f.state().held)
		}
		closeClient(t, c)
	})
}

// The name of a node below a directory is sent as it is, with the directory's
// handle; the handle's path is the whole.
func TestOpenBelow(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		d, err := c.Open(t.Context(), "/ls/foo/d", OpenOptions{Read: true, Create: Directory})
		if err != nil {
			t.Fatal(err)
		}
		h, err := d.Open(t.Context(), "a/b", OpenOptions{Read: true, Create: File, Contents: []byte("x")})
		if err != nil || h.Path() != "/ls/foo/d/a/b" {
			t.Fatalf("%v, %v", h, err)
		}
		r := f.heard("Open")[1].request.(*chubbypb.OpenRequest)
		if r.GetPath() != "a/b" || string(r.GetDirectory()) != string(d.currentToken()) || string(r.GetContents()) != "x" {
			t.Errorf("%+v", r)
		}
		for _, name := range []string{"", "/a", "a/", "..", "a//b"} {
			if _, err := d.Open(t.Context(), name, OpenOptions{Read: true}); !errors.Is(err, api.InvalidPath) {
				t.Errorf("%q: %v", name, err)
			}
		}
		closeClient(t, c)
	})
}
