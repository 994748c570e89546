package client

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// cacheable opens the handle of a lock that is kept.
func cacheable(t *testing.T, c *Client) *Handle {
	t.Helper()
	return opened(t, c, "/ls/foo/x", OpenOptions{Write: true, Create: File, CacheLock: true})
}

// A missing event may have taken a lock away, or have recalled it: no lock is kept over it,
// neither one that is idle nor one that is used at that moment.
func TestNoLockIsKeptOverMissingEvents(t *testing.T) {
	for name, used := range map[string]bool{"idle": false, "used": true} {
		runInSession(t, name, func(t *testing.T, f *fake, c *Client) {
			h := cacheable(t, c)
			l := acquired(t, h)
			release := func() {
				must(t, l.Release(t.Context()))
			}
			if !used {
				release()
			}
			f.post(f.only(), chubbypb.EventKind_EVENT_KIND_LOST)
			time.Sleep(time.Second)
			if used {
				release()
			}
			synctest.Wait()
			again, err := h.Acquire(t.Context(), api.Exclusive)
			if err != nil || again.Token() <= l.Token() {
				t.Errorf("%v, token %d after %d", err, again.Token(), l.Token())
			}
		})
	}
}

// An audit that finds a lock lost ends the use of it that goes on by then.
func TestAuditEndsALaterUseOfTheLock(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := cacheable(t, c)
		uses := make([]*Lock, 2)
		for i := range uses {
			var err error
			if uses[i], err = h.Acquire(t.Context(), api.Exclusive); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				must(t, uses[i].Release(t.Context()))
			}
		}
		f.locked(func() { f.holder = nil })
		c.auditor.auditLock(t.Context(), uses[0])
		if uses[1].Err() == nil {
			t.Error("it is used although the cell does not know it")
		}
	})
}

// An Acquire that cannot use the lock that is kept leaves nothing with the session.
func TestAcquireInAnotherModeLeavesNothing(t *testing.T) {
	inSession(t, func(t *testing.T, _ *fake, c *Client) {
		h := cacheable(t, c)
		use := func(mode api.LockMode) (contexts int) {
			l, err := h.Acquire(t.Context(), mode)
			if err == nil {
				err = l.Release(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return reflect.ValueOf(c.session.ended).Elem().FieldByName("children").Len()
		}
		began := use(api.Shared)
		for range 20 {
			use(api.Exclusive)
			use(api.Shared)
		}
		if now := use(api.Shared); now > began {
			t.Errorf("%d contexts depend on the session, and did %d before 40 changes of the mode", now, began)
		}
	})
}

// A recall is acknowledged when the lock has been given back, or soon if that takes long: the lease must not
// wait for it.
func TestRecallIsAcknowledgedAfterTheReturn(t *testing.T) {
	for name, answer := range map[string]verb{"late": after(maxReturn / 2), "never": hang} {
		runInSession(t, name, func(t *testing.T, f *fake, c *Client) {
			h := cacheable(t, c)
			l, err := h.Acquire(t.Context(), api.Exclusive)
			if err == nil {
				err = l.Release(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			f.inTurn("Release", answer, nil)
			f.tell(f.only(), uint64(h.id), &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_CONFLICTING_LOCK, Generation: l.Token()})
			time.Sleep(maxReturn / 3)
			if s := f.state(); s.acked != 0 || s.held == 0 {
				t.Errorf("acknowledged up to %d, and the lock is of %d", s.acked, s.held)
			}
			time.Sleep(maxReturn)
			if s := f.state(); s.acked == 0 || (s.held == 0) != (name == "late") {
				t.Errorf("later: acknowledged up to %d, and the lock is of %d", s.acked, s.held)
			}
		})
	}
}

// SetSequencer replaces the handle for all that comes later; concurrent ones are
// all kept.
func TestSetSequencer(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		h := lockable(t, c, 0)
		before := string(h.currentToken())
		f.on("SetSequencer", after(time.Second))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				noError(t, h.SetSequencer(t.Context(), l.Sequencer()))
			})
			all.Go(func() {
				noError(t, second(h.SetContents(t.Context(), nil)))
			})
		}
		all.Wait()
		if got := string(h.currentToken()); got != before+"+++" {
			t.Errorf("%q became %q", before, got)
		}
		_, err := h.Stat(t.Context())
		if r := f.heard("GetStat")[0].request.(*chubbypb.GetStatRequest); err != nil || string(r.GetHandle()) != before+"+++" {
			t.Errorf("Stat through %q: %v", r.GetHandle(), err)
		}
		if r := f.heard("SetSequencer")[0].request.(*chubbypb.SetSequencerRequest); r.GetSequencer() != l.Sequencer().String() {
			t.Errorf("%+v", r)
		}
		f.on("SetSequencer", fail(api.Errorf(api.BadSequencer, "not the newest")))
		if err := h.SetSequencer(t.Context(), l.Sequencer()); !errors.Is(err, api.BadSequencer) || string(h.currentToken()) != before+"+++" {
			t.Errorf("refused: %v", err)
		}
	})
}

// A request that is sent again is the same request, also if the handle was bound
// between: the cell refuses one number for two requests.
func TestRetryKeepsItsHandle(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		h := lockable(t, c, 0)
		f.onFirst("SetContents", func(context.Context, func() (any, error)) (any, error) {
			noError(t, h.SetSequencer(t.Context(), l.Sequencer()))
			return nil, chubbypb.Status(api.Errorf(api.Unavailable, "not yet"))
		})
		noError(t, second(h.SetContents(t.Context(), nil)))
		calls := f.heard("SetContents")
		for _, s := range calls {
			if string(s.request.(*chubbypb.SetContentsRequest).GetHandle()) != string(calls[0].request.(*chubbypb.SetContentsRequest).GetHandle()) {
				t.Errorf("%+v", s)
			}
		}
		if len(calls) != 2 {
			t.Errorf("%d attempts", len(calls))
		}
	})
}

// Writes that depend on a lock say so to the cell.
func TestIfSequencer(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		_, l := f.held(f.config())
		h, s := l.handle, l.Sequencer()
		noError(t, second(h.SetContents(t.Context(), nil, IfSequencer(s), IfGeneration(3))))
		noError(t, second(h.SetACL(t.Context(), api.ACL{}, IfSequencer(s))))
		if err := h.Delete(t.Context(), IfGeneration(3)); !errors.Is(err, api.InvalidArgument) || len(f.heard("Delete")) != 0 {
			t.Errorf("Delete of a generation: %v", err)
		}
		noError(t, h.Delete(t.Context(), IfSequencer(s)))
		for _, method := range []string{"SetContents", "SetACL", "Delete"} {
			r := f.heard(method)[0].request.(interface{ GetIfSequencer() string })
			if r.GetIfSequencer() != s.String() {
				t.Errorf("%s: %q", method, r.GetIfSequencer())
			}
		}
		if r := f.heard("SetContents")[0].request.(*chubbypb.SetContentsRequest); r.GetIfGeneration() != 3 {
			t.Errorf("%+v", r)
		}
	})
}

func TestQuotas(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		noError(t, c.SetPrincipalQuota(t.Context(), "alice", api.Quota{Nodes: 1, Bytes: 2, Sessions: 3, Handles: 4, Waiters: 5}))
		noError(t, c.SetDirectoryQuota(t.Context(), "/ls/foo/d", 8, 9))
		for _, one := range []struct {
			err  error
			text string // what 0 means is said of a principal and of a directory as it is
		}{
			{c.SetPrincipalQuota(t.Context(), "", api.Quota{}), "want 1 to"},
			{c.SetPrincipalQuota(t.Context(), strings.Repeat("x", api.MaxPrincipal+1), api.Quota{}), "want 1 to"},
			{c.SetPrincipalQuota(t.Context(), "alice", api.Quota{Waiters: -1}), "0 stands for the default"},
			{c.SetDirectoryQuota(t.Context(), "/ls/foo/d", -1, 0), "0 is no limit"},
			{c.SetDirectoryQuota(t.Context(), "/ls/foo/d", 0, -1), "0 is no limit"},
		} {
			if !errors.Is(one.err, api.InvalidArgument) || !strings.Contains(one.err.Error(), one.text) {
				t.Errorf("%v", one.err)
			}
		}
		wants(t, "SetDirectoryQuota", c.SetDirectoryQuota(t.Context(), "d", 1, 0), api.InvalidPath)
		calls := f.heard("SetQuota")
		if len(calls) != 2 {
			t.Fatalf("%d calls", len(calls))
		}
		one, two := calls[0].request.(*chubbypb.SetQuotaRequest), calls[1].request.(*chubbypb.SetQuotaRequest)
		if q := one.GetAllowed(); one.GetPrincipal() != "alice" || one.GetPath() != "" || q.GetWaiters() != 5 || chubbypb.Record[api.Quota](q).Validate() != nil {
			t.Errorf("%+v", one)
		}
		if q := two.GetAllowed(); two.GetPath() != "/ls/foo/d" || two.GetPrincipal() != "" || q.GetNodes() != 8 || q.GetBytes() != 9 {
			t.Errorf("%+v", two)
		}
	})
}

// What the library itself asks of a handle, after a fail-over, does not depend on
// the lock that the handle is bound to: else it could not be told that the handle's
// own lock is lost, nor that it is not.
func TestBoundHandleIsAuditedAsOpened(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		_, l := f.held(f.config())
		opened := string(l.handle.currentToken())
		if err := l.handle.SetSequencer(t.Context(), l.Sequencer()); err != nil || string(l.handle.currentToken()) == opened {
			t.Fatalf("%v, %q", err, l.handle.currentToken())
		}
		f.elect("b:1")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		asked := append(f.heard("GetSequencer"), f.heard("GetStat")...)
		if len(asked) < 2 {
			t.Errorf("asked %v", asked)
		}
		for _, s := range asked {
			if token := s.request.(interface{ GetHandle() []byte }).GetHandle(); string(token) != opened {
				t.Errorf("%s through %q, want %q", s.method, token, opened)
			}
		}
	})
}

// A handle that could not be bound is as it was: what is read through it is cached.
func TestRefusedSequencerBindsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cacheable = true
		_, l := f.held(f.config())
		f.on("SetSequencer", fail(api.Errorf(api.BadSequencer, "not the newest")))
		if err := l.handle.SetSequencer(t.Context(), l.Sequencer()); !errors.Is(err, api.BadSequencer) {
			t.Fatal(err)
		}
		for range 3 {
			must(t, second(l.handle.Stat(t.Context())))
		}
		if n := len(f.heard("GetStat")); n != 1 {
			t.Errorf("%d calls of GetStat, want 1", n)
		}
	})
}

// A change whose answer was lost before the session ended may have been made: its function is not called again. One that
// was refused because the session had ended was not made.
func TestKeeperAfterALostAnswer(t *testing.T) {
	for _, lost := range []bool{true, false} {
		inBubble(t, func(t *testing.T, f *fake) {
			k := ok(Keep(t.Context(), f.config()))(t)
			ended := fail(api.Errorf(api.SessionExpired, "there is no such session"))
			if lost {
				f.inTurn("SetContents", lose, ended, nil)
			} else {
				f.inTurn("SetContents", ended, nil)
			}
			calls := 0
			err := k.Do(t.Context(), func(c *Client) error {
				calls++
				h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true})
				if err != nil {
					return err
				}
				_, err = h.SetContents(t.Context(), []byte("new"))
				return err
			})
			want := 2
			if lost {
				want = 1
			}
			if calls != want || lost != errors.Is(err, api.SessionExpired) {
				t.Errorf("lost %v: called %d times, %v", lost, calls, err)
			}
			noError(t, k.Close(t.Context()))
		})
	}
}
