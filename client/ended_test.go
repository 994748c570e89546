package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// doomed ends the only session from outside.
func (f *fake) doomed() {
	s := f.only()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.doom()
}

// over reports whether the cell has ended its only session and freed its locks.
func (f *fake) over() bool {
	s := f.only()
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.ended
}

// A session that somebody else ended is over at once for its application; the
// cell frees its locks when their owner has let go, which the last KeepAlive
// says (decision 10).
func TestSessionEnded(t *testing.T) {
	for name, letGo := range map[string]func(t *testing.T, l *Lock){
		"Release": func(t *testing.T, l *Lock) {
			if err := l.Release(t.Context()); !errors.Is(err, api.SessionExpired) || !errors.Is(err, EndedByCell) {
				t.Errorf("Release: %v", err)
			}
		},
		"Handle.Close": func(t *testing.T, l *Lock) {
			wants(t, "Close", l.handle.Close(t.Context()), nil)
		},
		"Client.Close": func(t *testing.T, l *Lock) { closeClient(t, l.handle.client) },
	} {
		runInBubble(t, name, func(t *testing.T, f *fake) {
			c, l := f.held(f.config())
			began := time.Since(f.began)
			f.doomed()
			<-c.Done()
			if d := time.Since(f.began) - began; d > 10*time.Millisecond || !errors.Is(c.Err(), EndedByCell) || !strings.Contains(c.Err().Error(), "ended by bob: too old") {
				t.Errorf("after %v: %v", d, c.Err())
			}
			if !errors.Is(l.Err(), EndedByCell) || l.ExclusiveUntil() != 0 {
				t.Errorf("the lock: %v, exclusive for %v", l.Err(), l.ExclusiveUntil())
			}
			time.Sleep(5 * time.Second)
			if f.over() || f.state().held == 0 || len(f.keepAlives(began)) > 1 || slices.Contains(f.keepAlives(began), 1) {
				t.Errorf("acknowledged before the owner has let go: %v", f.keepAlives(began))
			}
			letGo(t, l)
			if name != "Client.Close" { // which waits for it
				time.Sleep(minPause)
				synctest.Wait()
			}
			if !f.over() || f.state().held != 0 {
				t.Errorf("not acknowledged although the owner has let go: %v", f.keepAlives(began))
			}
			closeClient(t, c)
			if asked := f.keepAlives(began); len(asked) > 2 || asked[len(asked)-1] != 1 {
				t.Errorf("KeepAlives %v", asked)
			}
		})
	}
}

// When the lease is over before the owner has let go, nothing is acknowledged
// any more: the master has counted on the lease alone.
func TestSessionEndedForTheDeaf(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		began := time.Since(f.began)
		f.doomed()
		time.Sleep(20 * time.Second)
		select {
		case <-c.keeper.done:
		default:
			t.Errorf("the last KeepAlive is still to be sent")
		}
		_ = l.Release(t.Context())
		closeClient(t, c)
		if asked := f.keepAlives(began); len(asked) > 3 || slices.Max(asked) > 0 {
			t.Errorf("KeepAlives %v", asked)
		}
	})
}

// A call may hear first that the session has ended. The KeepAlive in flight then
// brings what is to be acknowledged.
func TestCallHearsOfTheEndFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		_, l := f.held(f.config())
		f.on("GetStat", fail(api.Errorf(api.SessionExpired, "it is being ended")))
		wants(t, "Stat", second(l.handle.Stat(t.Context())), EndedByCell)
		f.doomed()
		time.Sleep(5 * time.Second)
		if f.over() {
			t.Errorf("acknowledged before the owner has let go")
		}
		_ = l.Release(t.Context())
		time.Sleep(time.Second)
		if !f.over() {
			t.Errorf("not acknowledged although the owner has let go")
		}
	})
}

// The last KeepAlive is repeated until a master has it; another master tells
// again first.
func TestSessionEndedAcrossFailOver(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		f.doomed()
		<-c.Done()
		time.Sleep(time.Second)
		f.cut("a:1")
		f.elect("b:1")
		_ = l.Release(t.Context())
		time.Sleep(3 * time.Second)
		if !f.over() {
			t.Errorf("not acknowledged")
		}
	})
}

// Close does not wait for a master that is not there.
func TestSessionEndedUnreachable(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, _ := f.held(f.config())
		f.doomed()
		<-c.Done()
		f.cut(addresses()...)
		began := time.Now()
		closeClient(t, c)
		if d := time.Since(began); d > maxCloseTime {
			t.Errorf("Close took %v", d)
		}
	})
}

// Ending another's session is a mutation with a reason.
func TestEndSession(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		operator := f.client(f.config())
		wants(t, "its own", operator.EndSession(t.Context(), operator.Session(), "x"), api.InvalidArgument)
		if err := operator.EndSession(t.Context(), 0, "x"); !errors.Is(err, api.NotFound) || len(f.heard("EndSession")) > 0 {
			t.Errorf("session 0, which nobody has: %v, %d calls", err, len(f.heard("EndSession")))
		}
		wants(t, "a lock that is taken away for no reason", operator.BreakLock(t.Context(), "/ls/foo/x", "", false), api.InvalidArgument)
		wants(t, "a long reason", operator.EndSession(t.Context(), c.Session(), strings.Repeat("x", api.MaxReason+1)), api.InvalidArgument)
		if err := operator.EndSession(t.Context(), 99, ""); !errors.Is(err, api.NotFound) || operator.Err() != nil {
			t.Errorf("of nobody: %v, %v", err, operator.Err())
		}
		if err := operator.EndSession(t.Context(), c.Session(), ""); err != nil {
			t.Errorf("%v", err)
		}
		<-l.Context().Done()
		if !errors.Is(c.Err(), EndedByCell) {
			t.Errorf("%v", c.Err())
		}
		for _, s := range f.heard("EndSession") {
			if r, ok := s.request.(interface{ GetReason() string }); s.number == 0 || !ok || r.GetReason() != noReason {
				t.Errorf("%+v", s)
			}
		}
	})
}

// A lock that was granted just when the session ended is not handed out: the end
// may have been acknowledged without it.
func TestGrantAtTheEnd(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		l := newLock(h, lockTerms{mode: api.Exclusive}, f.parsedSequencer(7))
		c.session.endSession(EndedByCell, "by bob")
		if err := h.setLock(l, 0); !errors.Is(err, EndedByCell) || len(c.handles.unreleasedLocks()) != 0 {
			t.Errorf("%v, %d locks", err, len(c.handles.unreleasedLocks()))
		}
	})
}

// One last KeepAlive is enough, also if the master answers it while it is still
// busy ending the session.
func TestLastKeepAliveIsOne(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		time.Sleep(time.Second)
		began := time.Since(f.began)
		f.script(func(s seen) verb {
			if k, ok := s.request.(*chubbypb.KeepAliveRequest); !ok || k.GetAcknowledged() == 0 {
				return nil
			}
			return func(context.Context, func() (any, error)) (any, error) {
				return &chubbypb.KeepAliveReply{Epoch: 5}, nil
			}
		})
		time.Sleep(time.Second)
		f.doomed()
		time.Sleep(5 * time.Second)
		if asked := f.keepAlives(began); len(asked) != 1 {
			t.Errorf("KeepAlives %v", asked)
		}
	})
}

// A handle that was granted its lock anew has lost the one before, though no event told
// of that. The answers may come in either order.
func TestLaterGrantEndsTheEarlier(t *testing.T) {
	for _, late := range []bool{false, true} {
		inSession(t, func(t *testing.T, f *fake, c *Client) {
			h := lockable(t, c, 0)
			grant := func(generation uint64) *Lock {
				return newLock(h, lockTerms{mode: api.Exclusive}, f.parsedSequencer(generation))
			}
			earlier, later := grant(7), grant(8)
			if !late {
				must(t, h.setLock(earlier, 0))
			}
			must(t, h.setLock(later, 0))
			if late {
				wants(t, "an answer that came late", h.setLock(earlier, 0), api.LockLost)
			} else if !errors.Is(earlier.Err(), LockTaken) {
				t.Errorf("the earlier lock: %v", earlier.Err())
			}
			if locks := c.handles.unreleasedLocks(); len(locks) != 1 || locks[0] != later || later.Err() != nil {
				t.Errorf("%d locks; the later: %v", len(locks), later.Err())
			}
		})
	}
}

// Chubby §2.6: Poison fails what is outstanding and what comes later, at once,
// and closes nothing. What was under way is settled.
func TestPoison(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h, other := lockable(t, c, 0), lockable(t, c, 0)
		f.locked(func() { f.holder = &fakeHold{gen: 50, session: &fakeSession{id: 77}} })
		f.when(func(s seen) bool { return s.method == "SetContents" || s.method == "GetStat" }, hang)
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
	})
}

// The lock of a poisoned handle stays held, and can be released.
func TestPoisonKeepsTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		_, l := f.held(f.config())
		l.handle.Poison()
		time.Sleep(time.Minute)
		if l.Err() != nil || f.state().held == 0 {
			t.Errorf("%v, held %d", l.Err(), f.state().held)
		}
		if err := l.Release(t.Context()); err != nil || f.state().held != 0 {
			t.Errorf("Release: %v, held %d", err, f.state().held)
		}
	})
}

// A lock that is granted to a handle that was poisoned meanwhile is not handed
// out, and is given back.
func TestGrantToPoisoned(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		f.on("TryAcquire", then(func() { h.Poison() }))
		if l, err := h.TryAcquire(t.Context(), api.Exclusive); l != nil || !errors.Is(err, Poisoned) || !errors.Is(err, api.HandleClosed) {
			t.Errorf("%v, %v", l, err)
		}
		time.Sleep(time.Second)
		if f.state().held != 0 {
			t.Errorf("held %d", f.state().held)
		}
	})
}

// The name of a node below a directory is sent as it is, with the directory's
// handle; the handle's path is the whole.
func TestOpenBelow(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		d := opened(t, c, "/ls/foo/d", OpenOptions{Read: true, Create: Directory})
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
	})
}
