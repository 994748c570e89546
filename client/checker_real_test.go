//go:build linux

package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
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
	celltest.Run(t, 3, func(t *testing.T, cell *celltest.Cell) {
		ctx := t.Context()
		alice := cell.Client("alice")
		for name, lines := range map[string]string{"holders": "alice\n", "readers": "alice\nserver\n"} {
			list := client.OpenOptions{Write: true, Create: client.File, Contents: []byte(lines)}
			must(t, second(alice.Open(ctx, "/ls/local/acl/"+name, list)))
		}
		mine := client.OpenOptions{Write: true, Create: client.File, ACL: api.ACL{Read: "readers", Write: "holders", Change: "holders"}}
		h := ok(alice.Open(ctx, "/ls/local/primary", mine))(t)
		p := ok(protect(ctx, cell.ConfigOf("server"), api.MustParsePath("/ls/local/primary"), filepath.Join(t.TempDir(), "guard")))(t)
		if _, err := p.session.Open(ctx, "/ls/local/primary", client.OpenOptions{Write: true}); !errors.Is(err, api.PermissionDenied) {
			t.Fatalf("the server should have the right to read the node, and no other: %v", err)
		}
		acquire := func(h *client.Handle) *client.Lock {
			t.Helper()
			return ok(h.Acquire(ctx, api.Exclusive))(t)
		}
		letIn := func(l *client.Lock, requests int) {
			t.Helper()
			for range requests {
				must(t, second(p.guard.Check(ctx, l.Sequencer().String())))
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
		must(t, l.Release(ctx))
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
		must(t, alice.BreakLock(ctx, "/ls/local/primary", "a test", false))
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
	})
}

// What a request costs that a kept answer lets in, and one that asks the cell.
func BenchmarkChecker(b *testing.B) {
	cell := celltest.Start(b, 1)
	cfg := client.Config{Servers: cell.Servers(), Dialer: cell.Dial}
	c := ok(client.New(b.Context(), cfg))(b)
	h := ok(c.Open(b.Context(), "/ls/local/primary", client.OpenOptions{Write: true, Create: client.File}))(b)
	l := ok(h.Acquire(b.Context(), api.Exclusive))(b)
	text := l.Sequencer().String()
	p := ok(protect(b.Context(), cfg, api.MustParsePath("/ls/local/primary"), filepath.Join(b.TempDir(), "guard")))(b)
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
		every := ok(p.session.CachingChecker(0))(b)
		defer every.Close()
		for b.Loop() {
			if err := every.CheckSequencer(b.Context(), l.Sequencer()); err != nil {
				b.Fatal(err)
			}
		}
	})
	_ = c.Close(b.Context())
}

// The examples do on a real cell what they say: they write something only if that
// fails. ExampleRenew runs until its process gets a signal, and is not run.
func TestExamplesRun(t *testing.T) {
	out := ok(os.Create(filepath.Join(t.TempDir(), "out")))(t)
	defer out.Close()
	stdout, was := os.Stdout, config
	defer func() { os.Stdout, config = stdout, was }()
	os.Stdout = out
	synctest.Test(t, func(t *testing.T) {
		foo := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.Cell = "foo" })
		config = client.Config{Cell: "foo", Servers: foo.Servers(), Dialer: foo.Dial, Clock: celltest.Clock}
		c := foo.Client("host", func(cfg *client.Config) { cfg.Cell = "foo" })
		must(t, second(c.Open(t.Context(), "/ls/foo/svc", client.OpenOptions{Read: true, Create: client.Directory})))
		Example()
		x, err := c.Cell().Explain(t.Context(), "/ls/foo/svc/primary")
		if err != nil || x.Lock.Generation == 0 || len(x.Lock.Holders) != 0 {
			t.Errorf("after Example: %+v, %v; want a lock that was held, and is free", x.Lock, err)
		}
		ExampleCell_NewSession()
		if sessions, err := c.Cell().Sessions(t.Context()); err != nil || len(sessions) != 1 {
			t.Errorf("after ExampleCell_NewSession: %d sessions, %v; want this one", len(sessions), err)
		}
	})
	must(t, second(out.Seek(0, io.SeekStart)))
	if text, err := io.ReadAll(out); err != nil || len(bytes.TrimSpace(text)) > 0 {
		t.Errorf("the examples wrote %q, %v", text, err)
	}
}

// A write that waits for the cache of a client that is cut off, and is given up, holds
// up no Release, nor what others write.
func TestReleaseBehindAWriteThatWaits(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, foo *celltest.Cell) {
		writer, reader := foo.Client("writer"), foo.Client("reader")
		open := func(c *client.Client, path string) *client.Handle {
			return opened(t, c, path, client.OpenOptions{Read: true, Write: true, Create: client.File})
		}
		l := acquired(t, open(writer, "/ls/local/lock"))
		x := open(writer, "/ls/local/x")
		cached := open(reader, "/ls/local/x")
		for range 2 { // the second of the reads is answered by the cache
			if _, _, err := cached.Contents(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		foo.Cut("reader")
		brief := bounded(t, time.Second)
		// The deadline is the master's as well: at that moment its answer, that the change was not made, may come first.
		if _, err := x.SetContents(brief, []byte("1")); brief.Err() == nil ||
			!errors.Is(err, api.Uncertain) && !errors.Is(err, api.Unavailable) {
			t.Errorf("the write did not wait: %v", err)
		}
		began := time.Now()
		if err := l.Release(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("Release: %v after %v", err, time.Since(began))
		}
		if _, err := x.SetContents(t.Context(), []byte("2")); err != nil || time.Since(began) > api.CacheLease {
			t.Errorf("the next write: %v after %v", err, time.Since(began))
		}
		foo.Heal("reader")
	})
}
