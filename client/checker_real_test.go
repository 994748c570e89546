//go:build linux

// A cell needs more of its system than a client does.

package client_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// protected is a server that a lock protects, with a session of its own. The
// page docs/sequencers.md shows it.
type protected struct {
	session *client.Client
	checker *client.CachingChecker
	store   *sequencer.FileStore
	guard   *sequencer.Guard
}

func protect(ctx context.Context, cfg client.Config, lock api.Path, file string) (p *protected, err error) {
	p = &protected{}
	defer func() {
		if err != nil {
			p.close(ctx)
		}
	}()
	cfg.NoCache = true // it reads nothing, and nobody should wait for it
	if p.session, err = client.New(ctx, cfg); err != nil {
		return nil, err
	}
	if p.checker, err = p.session.CachingChecker(client.MaxCheckAge); err != nil {
		return nil, err
	}
	if p.store, err = sequencer.OpenFileStore(file); err != nil {
		return nil, err
	}
	p.guard, err = sequencer.NewGuard(ctx, sequencer.GuardConfig{Locks: []api.Path{lock}, Store: p.store, Checker: p.checker})
	return p, err
}

// close comes after the last request.
func (p *protected) close(ctx context.Context) {
	if p.checker != nil {
		p.checker.Close()
	}
	if p.session != nil {
		_ = p.session.Close(ctx) // the cell ends it, if it cannot be told
	}
	if p.store != nil {
		_ = p.store.Close() // nothing is written by it
	}
}

// A guard with a session lets the holder in, asks the cell once a second for
// that, and refuses who has lost the lock as soon as its event is there, although
// no newer token has come. It needs the right to read the node (Chubby §2.4).
func TestGuardWithSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 3)
		ctx := t.Context()
		config := func(name string) client.Config {
			return client.Config{Servers: cell.Servers(), Dialer: cell.DialFrom(name), Clock: cell.ClockOf(name), As: name}
		}
		alice, err := client.New(ctx, config("alice"))
		if err != nil {
			t.Fatal(err)
		}
		for name, lines := range map[string]string{"holders": "alice\n", "readers": "alice\nserver\n"} {
			list := client.OpenOptions{Write: true, Create: client.File, Contents: []byte(lines)}
			if _, err := alice.Open(ctx, "/ls/local/acl/"+name, list); err != nil {
				t.Fatal(err)
			}
		}
		mine := client.OpenOptions{Write: true, Create: client.File, ACL: api.ACL{Read: "readers", Write: "holders", Change: "holders"}}
		h, err := alice.Open(ctx, "/ls/local/primary", mine)
		if err != nil {
			t.Fatal(err)
		}
		p, err := protect(ctx, config("server"), api.MustParsePath("/ls/local/primary"), filepath.Join(t.TempDir(), "guard"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.session.Open(ctx, "/ls/local/primary", client.OpenOptions{Write: true}); !errors.Is(err, api.PermissionDenied) {
			t.Fatalf("the server should have the right to read the node, and no other: %v", err)
		}
		acquire := func(h *client.Handle) *client.Lock {
			t.Helper()
			l, err := h.Acquire(ctx, api.Exclusive)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		letIn := func(l *client.Lock, requests int) {
			t.Helper()
			for range requests {
				if _, err := p.guard.Check(ctx, l.Sequencer().String()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		refused := func(l *client.Lock) {
			t.Helper()
			time.Sleep(100 * time.Millisecond) // for the event; much less than an answer would serve for
			var r *sequencer.Refusal
			if _, err := p.guard.Check(ctx, l.Sequencer().String()); !errors.As(err, &r) || r.Token != l.Token() || r.Newest != l.Token() {
				t.Errorf("the lock of token %d is lost, and %v", l.Token(), err)
			}
		}
		l := acquire(h)
		letIn(l, 300)
		if stats := p.checker.Stats(); stats.Watched != 1 || stats.Asked > 6 || stats.Kept < 290 {
			t.Errorf("300 requests in 3 s: %+v", stats)
		}
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		refused(l)

		l = acquire(h)
		letIn(l, 10)
		cell.Restart(cell.FailOver())
		letIn(l, 10)
		time.Sleep(5 * time.Second)
		letIn(l, 10)
		if stats := p.checker.Stats(); stats.Watched != 1 {
			t.Errorf("after a fail-over: %+v", stats)
		}
		if err := alice.BreakLock(ctx, "/ls/local/primary", "a test", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(client.MaxCheckAge)
		refused(l) // its holder has not let go, and there is no event before that
		if err := l.Release(ctx); err != nil && !errors.Is(err, api.LockLost) {
			t.Fatal(err)
		}

		l = acquire(h)
		letIn(l, 10)
		cell.Expire(alice.Session())
		refused(l)
		if got, want := p.guard.Stats(), (sequencer.Stats{Accepted: 340, RefusedLost: 3}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		p.close(ctx)
		_ = alice.Close(ctx) // the session is gone
	})
}

// What a request costs that a kept answer lets in, and one that asks the cell.
func BenchmarkChecker(b *testing.B) {
	cell := celltest.Start(b, 1)
	cfg := client.Config{Servers: cell.Servers(), Dialer: cell.Dial}
	c, err := client.New(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	h, err := c.Open(b.Context(), "/ls/local/primary", client.OpenOptions{Write: true, Create: client.File})
	if err != nil {
		b.Fatal(err)
	}
	l, err := h.Acquire(b.Context(), api.Exclusive)
	if err != nil {
		b.Fatal(err)
	}
	text := l.Sequencer().String()
	p, err := protect(b.Context(), cfg, api.MustParsePath("/ls/local/primary"), filepath.Join(b.TempDir(), "guard"))
	if err != nil {
		b.Fatal(err)
	}
	defer p.close(context.Background())
	check := func(b *testing.B) {
		if _, err := p.guard.Check(b.Context(), text); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("answer=kept", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			check(b)
		}
	})
	b.Run("answer=kept-parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := p.guard.Check(b.Context(), text); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("answer=asked", func(b *testing.B) {
		every, err := p.session.CachingChecker(0)
		if err != nil {
			b.Fatal(err)
		}
		defer every.Close()
		for b.Loop() {
			if err := every.CheckSequencer(b.Context(), l.Sequencer()); err != nil {
				b.Fatal(err)
			}
		}
	})
	_ = c.Close(b.Context())
}
