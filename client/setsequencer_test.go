package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// SetSequencer replaces the handle for all that comes later; concurrent ones are
// all kept.
func TestSetSequencer(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		h := lockable(t, c, 0)
		before := string(h.currentToken())
		f.script(func(s seen) verb {
			if s.method == "SetSequencer" {
				return after(time.Second)
			}
			return nil
		})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := h.SetSequencer(t.Context(), l.Sequencer()); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if _, err := h.SetContents(t.Context(), nil); err != nil {
					t.Error(err)
				}
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
		f.script(func(s seen) verb {
			if s.method == "SetSequencer" {
				return fail(api.Errorf(api.BadSequencer, "not the newest"))
			}
			return nil
		})
		if err := h.SetSequencer(t.Context(), l.Sequencer()); !errors.Is(err, api.BadSequencer) || string(h.currentToken()) != before+"+++" {
			t.Errorf("refused: %v", err)
		}
		closeClient(t, c)
	})
}

// A request that is sent again is the same request, also if the handle was bound
// between: the cell refuses one number for two requests.
func TestRetryKeepsItsHandle(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		h := lockable(t, c, 0)
		f.script(func(s seen) verb {
			if s.method == "SetContents" && s.nth == 1 {
				return func(context.Context, func() (any, error)) (any, error) {
					if err := h.SetSequencer(t.Context(), l.Sequencer()); err != nil {
						t.Error(err)
					}
					return nil, chubbypb.Status(api.Errorf(api.Unavailable, "not yet"))
				}
			}
			return nil
		})
		if _, err := h.SetContents(t.Context(), nil); err != nil {
			t.Error(err)
		}
		calls := f.heard("SetContents")
		for _, s := range calls {
			if string(s.request.(*chubbypb.SetContentsRequest).GetHandle()) != string(calls[0].request.(*chubbypb.SetContentsRequest).GetHandle()) {
				t.Errorf("%+v", s)
			}
		}
		if len(calls) != 2 {
			t.Errorf("%d attempts", len(calls))
		}
		closeClient(t, c)
	})
}

// Writes that depend on a lock say so to the cell.
func TestIfSequencer(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		h, s := l.handle, l.Sequencer()
		if _, err := h.SetContents(t.Context(), nil, IfSequencer(s), IfGeneration(3)); err != nil {
			t.Error(err)
		}
		if _, err := h.SetACL(t.Context(), api.ACL{}, IfSequencer(s)); err != nil {
			t.Error(err)
		}
		if err := h.Delete(t.Context(), IfGeneration(3)); !errors.Is(err, api.InvalidArgument) || len(f.heard("Delete")) != 0 {
			t.Errorf("Delete of a generation: %v", err)
		}
		if err := h.Delete(t.Context(), IfSequencer(s)); err != nil {
			t.Error(err)
		}
		for _, method := range []string{"SetContents", "SetACL", "Delete"} {
			r := f.heard(method)[0].request.(interface{ GetIfSequencer() string })
			if r.GetIfSequencer() != s.String() {
				t.Errorf("%s: %q", method, r.GetIfSequencer())
			}
		}
		if r := f.heard("SetContents")[0].request.(*chubbypb.SetContentsRequest); r.GetIfGeneration() != 3 {
			t.Errorf("%+v", r)
		}
		closeClient(t, c)
	})
}

func TestQuotas(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		list, err := c.cell.Quotas(t.Context())
		if err != nil || len(list) != 2 || list[0] != (QuotaUse{Principal: "alice",
			Used: api.Quota{Nodes: 1, Bytes: 2, Sessions: 3, Handles: 4, Waiters: 5}, Allowed: api.Quota{Nodes: 6}}) || list[1].Path != "/ls/foo/d" {
			t.Errorf("%+v, %v", list, err)
		}
		if err := c.SetPrincipalQuota(t.Context(), "alice", api.Quota{Nodes: 1, Bytes: 2, Sessions: 3, Handles: 4, Waiters: 5}); err != nil {
			t.Error(err)
		}
		if err := c.SetDirectoryQuota(t.Context(), "/ls/foo/d", 8, 9); err != nil {
			t.Error(err)
		}
		for _, err := range []error{
			c.SetPrincipalQuota(t.Context(), "", api.Quota{}),
			c.SetPrincipalQuota(t.Context(), strings.Repeat("x", api.MaxPrincipal+1), api.Quota{}),
			c.SetPrincipalQuota(t.Context(), "alice", api.Quota{Waiters: -1}),
			c.SetDirectoryQuota(t.Context(), "/ls/foo/d", -1, 0),
		} {
			if !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%v", err)
			}
		}
		if err := c.SetDirectoryQuota(t.Context(), "d", 1, 0); !errors.Is(err, api.InvalidPath) {
			t.Errorf("%v", err)
		}
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
		closeClient(t, c)
	})
}

// What the library itself asks of a handle, after a fail-over, does not depend on
// the lock that the handle is bound to: else it could not be told that the handle's
// own lock is lost, nor that it is not.
func TestBoundHandleIsAuditedAsOpened(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
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
		closeClient(t, c)
	})
}

// A handle that could not be bound is as it was: what is read through it is cached.
func TestRefusedSequencerBindsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cacheable = true
		c, l := f.held(f.config())
		f.script(func(s seen) verb {
			if s.method == "SetSequencer" {
				return fail(api.Errorf(api.BadSequencer, "not the newest"))
			}
			return nil
		})
		if err := l.handle.SetSequencer(t.Context(), l.Sequencer()); !errors.Is(err, api.BadSequencer) {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := l.handle.Stat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(f.heard("GetStat")); n != 1 {
			t.Errorf("%d calls of GetStat, want 1", n)
		}
		closeClient(t, c)
	})
}
