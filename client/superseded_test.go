package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// A call that is about to be sent when another master is found does not go to the
// one before, which may never answer.
func TestCallIsNotSentToASupersededMaster(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		before, err := c.cell.locator.locate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			if s.address == "b:1" {
				return after(time.Minute) // or a KeepAlive would be led back by it
			}
			return nil
		})
		if !c.cell.locator.redirect(before, "b:1") {
			t.Fatal("nobody followed")
		}
		sent := false
		e, _ := c.cell.dispatcher.attemptOnce(t.Context(), call{attempt: func(ctx context.Context, _ *target, _ *chubbypb.Caller) error {
			sent = true
			<-ctx.Done()
			return ctx.Err()
		}}, before, nil)
		if sent || e == nil || verdictOf(e) != verdictRetry {
			t.Errorf("sent %v: %v", sent, e)
		}
		closeClient(t, c)
	})
}

// What is asked of replicas, because each is to answer for itself, goes on when one
// of them is found to be the master.
func TestStatusWhileAMasterIsFound(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Servers = []string{"a:1"} // it names the others
		cell := f.dialled(cfg)
		f.script(func(s seen) verb {
			if s.method != "Status" || s.address == "a:1" {
				return nil
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				time.Sleep(time.Second)
				return next()
			}
		})
		go func() {
			time.Sleep(500 * time.Millisecond)
			_, _ = cell.locator.locate(t.Context())
		}()
		s, err := cell.Status(t.Context())
		if err != nil || len(s.Replicas) != 3 {
			t.Fatalf("%+v, %v", s, err)
		}
		for _, r := range s.Replicas {
			if r.Err != nil {
				t.Errorf("%s: %v", r.ID, r.Err)
			}
		}
		cell.pool.retain([]string{"a:1"})
		if n := len(cell.pool.targets); n != 1 {
			t.Errorf("%d connections are kept, want 1", n)
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A handle that is closed when another master has been heard of, and the cache not
// been emptied yet, is closed at that one: it may have it open.
func TestHandleClosedInANewEpochIsNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cacheable, f.reusable = true, true
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: true})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.mu.Lock()
		f.epoch++
		f.mu.Unlock()
		c.session.applyGrant(c.cfg.Clock(), session.Grant{Epoch: c.Epoch() + 1, Number: 1, Lease: 12 * time.Second})
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(f.heard("CloseHandle")); n != 1 {
			t.Errorf("%d calls of Close, want 1", n)
		}
		closeClient(t, c)
	})
}

// The grants of an epoch are counted anew: the master is not told that one was
// heard of which it has not made yet, or it would not repeat it when it is lost.
func TestGrantsAreCountedAnewInEachEpoch(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		synctest.Wait()
		c.session.applyGrant(c.cfg.Clock(), session.Grant{Epoch: 5, Number: 500, Lease: 12 * time.Second})
		if n := c.session.newestGrant(); n != 500 {
			t.Errorf("newest %d", n)
		}
		c.session.applyGrant(c.cfg.Clock(), session.Grant{Epoch: 6}) // of a master that wants a sign of life first
		if n := c.session.newestGrant(); n != 0 {
			t.Errorf("newest %d of an epoch without any", n)
		}
		f.mu.Lock()
		f.epoch = 6
		f.mu.Unlock()
		closeClient(t, c)
	})
}

// A caller with no time to wait for the addresses of the servers is told that, and not
// that the client is closed.
func TestNoTimeToLookUpServers(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cell := f.dialled(f.config())
		cell.locator.resolve = func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := cell.Status(ctx)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.Unavailable || errors.Is(err, Closed) || !errors.Is(err, context.DeadlineExceeded) ||
			!slices.Equal([]string{e.Op, e.Path}, []string{"ask for status", "/ls/foo"}) {
			t.Errorf("%v", err)
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}
