//go:build linux

package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// cachers are two sessions that cache the lock of one file.
type cachers struct {
	t        *testing.T
	cell     *celltest.Cell
	one, two *client.Client
	h1, h2   *client.Handle
}

const cachedDelay = 5 * time.Second

func withCachers(t *testing.T, replicas int, test func(t *testing.T, c *cachers)) {
	t.Helper()
	celltest.Run(t, replicas, func(t *testing.T, cell *celltest.Cell) {
		c := &cachers{t: t, cell: cell}
		c.one, c.h1 = c.open("one")
		c.two, c.h2 = c.open("two")
		test(t, c)
	})
}

func (c *cachers) open(host string) (*client.Client, *client.Handle) {
	c.t.Helper()
	session := c.cell.Client(host)
	return session, opened(c.t, session, lockPath, client.OpenOptions{Write: true, Create: client.File, LockDelay: cachedDelay, CacheLock: true})
}

func (c *cachers) acquire(h *client.Handle, options ...client.LockOption) *client.Lock {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Minute)
	defer cancel()
	return ok(h.Acquire(ctx, api.Exclusive, options...))(c.t)
}

func (c *cachers) release(l *client.Lock) {
	c.t.Helper()
	must(c.t, l.Release(c.t.Context()))
}

// isFree reports whether the lock can be had at once.
func (c *cachers) isFree(h *client.Handle) bool {
	l, err := h.TryAcquire(c.t.Context(), api.Exclusive)
	if err == nil {
		c.release(l)
	}
	return err == nil
}

// A lock that was released is there again without a call, under the same token and with a context of
// its own.
func TestCachedLockMakesNoCall(t *testing.T) {
	withCachers(t, 1, func(t *testing.T, c *cachers) {
		first := c.acquire(c.h1)
		c.release(first)
		calls := c.one.Stats().Attempts
		for range 1000 {
			l := c.acquire(c.h1)
			if l.Err() != nil || l.Token() != first.Token() || l.ExclusiveUntil() <= 0 {
				t.Fatalf("%v, token %d after %d, exclusive for %v", l.Err(), l.Token(), first.Token(), l.ExclusiveUntil())
			}
			c.release(l)
			if !errors.Is(l.Err(), client.LockReleased) {
				t.Fatalf("after Release: %v", l.Err())
			}
		}
		if more := c.one.Stats().Attempts - calls; more != 0 {
			t.Errorf("%d calls", more)
		}
		if l, err := c.h1.TryAcquire(t.Context(), api.Exclusive); err != nil || c.one.Stats().Attempts != calls {
			t.Errorf("TryAcquire: %v, %d calls", err, c.one.Stats().Attempts-calls)
		} else {
			c.release(l)
		}
	})
}

// An idle lock is given back as soon as another asks for it.
func TestIdleLockIsRecalled(t *testing.T) {
	withCachers(t, 1, func(t *testing.T, c *cachers) {
		first := c.acquire(c.h1)
		c.release(first)
		began := time.Now()
		second := c.acquire(c.h2)
		if took := time.Since(began); took > time.Second || second.Token() <= first.Token() {
			t.Errorf("after %v, token %d after %d", took, second.Token(), first.Token())
		}
		c.release(second)
		third := c.acquire(c.h1) // recalls it in turn
		if third.Token() <= second.Token() {
			t.Errorf("token %d after %d", third.Token(), second.Token())
		}
		c.release(third)
	})
}

// Who waits has the lock before its holder has it again, however fast that is.
func TestWaiterComesBeforeTheCacher(t *testing.T) {
	withCachers(t, 1, func(t *testing.T, c *cachers) {
		l := c.acquire(c.h1)
		got := make(chan uint64)
		go func() {
			l := c.acquire(c.h2)
			c.release(l)
			got <- l.Token()
		}()
		token, uses := l.Token(), 0
		for ; l.Token() == token && uses < 100_000; uses++ {
			c.release(l)
			l = c.acquire(c.h1)
			time.Sleep(time.Millisecond)
		}
		c.release(l)
		if other := <-got; uses > 1000 || other < token {
			t.Errorf("%d uses of the lock while another waited, which has token %d after %d", uses, other, token)
		}
	})
}

// A lock that nobody uses is given back, and so is that of a handle that is closed.
func TestIdleLockIsGivenBack(t *testing.T) {
	withCachers(t, 1, func(t *testing.T, c *cachers) {
		l := c.acquire(c.h1)
		c.release(l)
		for range 6 { // in use again and again
			time.Sleep(4 * time.Second)
			again := c.acquire(c.h1)
			if again.Token() != l.Token() {
				t.Fatal("it was given back although it was used")
			}
			c.release(again)
		}
		time.Sleep(6 * time.Second)
		if !c.isFree(c.h2) {
			t.Error("it is kept for ever")
		}
		time.Sleep(6 * time.Second)
		c.release(c.acquire(c.h1))
		must(t, c.h1.Close(t.Context()))
		if !c.isFree(c.h2) {
			t.Error("a closed handle keeps it")
		}
	})
}

// Another mode or another reason is a matter of the cell's, and so is a handle that is bound to another lock.
func TestCachedLockIsOfOneKind(t *testing.T) {
	withCachers(t, 1, func(t *testing.T, c *cachers) {
		l := c.acquire(c.h1)
		c.release(l)
		shared, err := c.h1.Acquire(t.Context(), api.Shared)
		if err != nil || shared.Mode() != api.Shared || shared.Token() <= l.Token() {
			t.Fatalf("%v, token %d after %d", err, shared.Token(), l.Token())
		}
		c.release(shared)
		l = c.acquire(c.h1, client.Reason("backup"))
		if l.Token() <= shared.Token() {
			t.Errorf("token %d after %d", l.Token(), shared.Token())
		}
		held, err := c.two.Cell().LocksOf(t.Context(), c.one.Session())
		if err != nil || len(held) != 1 || held[0].Holders[0].Reason != "backup" || !held[0].Holders[0].Cached {
			t.Errorf("%v: %+v", err, held)
		}
		c.release(l)
		if again := c.acquire(c.h1, client.Reason("backup")); again.Token() != l.Token() {
			t.Error("the same reason made a call")
		}
	})
}

// What an Acquire and a Release cost: of a lock that is kept, and of one that is not.
func BenchmarkLock(b *testing.B) {
	cell := celltest.Start(b, 1)
	c := ok(client.New(b.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.Dial}))(b)
	for name, kept := range map[string]bool{"kept": true, "released": false} {
		h := ok(c.Open(b.Context(), "/ls/local/"+name, client.OpenOptions{Write: true, Create: client.File, CacheLock: kept}))(b)
		b.Run("lock="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l, err := h.Acquire(b.Context(), api.Exclusive)
				if err == nil {
					err = l.Release(b.Context())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	if err := c.Close(context.Background()); err != nil {
		b.Error(err)
	}
}

// A grant that is looked at only after a fail-over is of a lock whose holder the new master does not know: it
// cannot recall the lock. It is not kept.
func TestGrantFromBeforeAFailOverIsNotKept(t *testing.T) {
	withCachers(t, 3, func(t *testing.T, c *cachers) {
		before := c.acquire(c.h2)
		failedOver, queued := make(chan struct{}), make(chan struct{}, 10)
		got := make(chan *client.Lock)
		go func() {
			got <- c.acquire(c.h1, client.OnQueued(func(client.Queued) { queued <- struct{}{}; <-failedOver }))
		}()
		<-queued
		epoch := c.one.Epoch()
		c.release(before)
		pass(time.Second) // the grant is on its way
		c.cell.FailOver()
		for c.one.Epoch() == epoch {
			pass(10 * time.Millisecond)
		}
		pass(time.Second)
		calls := c.one.Stats().Attempts
		close(failedOver)
		l := <-got
		if c.one.Stats().Attempts != calls {
			t.Fatal("the grant is of the new master")
		}
		waits := make(chan *client.Lock)
		go func() { waits <- c.acquire(c.h2) }()
		began := time.Now()
		for {
			c.release(l)
			select {
			case next := <-waits:
				c.release(next)
				return
			case <-time.After(10 * time.Millisecond):
			}
			if time.Since(began) > time.Minute {
				t.Errorf("another has waited for %v, and the lock was used all the time", time.Since(began))
				noError(t, c.h1.Close(t.Context()))
				c.release(<-waits)
				return
			}
			within, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			next, err := c.h1.Acquire(within, api.Exclusive)
			cancel()
			if err == nil {
				l = next
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
	})
}

// Uncertain is for calls that may have changed something: what only reads, opens what is there or waits for a lock says that
// its time was over. So Uncertain of Do is of the release alone, and its function was called. What was opened is closed.
func TestWhatChangesNothingIsNotUncertain(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		one, two := cell.Client("h1", func(cfg *client.Config) { cfg.NoCache = true }), cell.Client("h2")
		must(t, second(two.Put(ctx, "/ls/local/f", nil)))
		brief := func(call func(ctx context.Context) error) error {
			ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			return call(ctx)
		}
		called := false
		work := func(context.Context, *client.Lock) error { called = true; return nil }
		second := func(_ any, err error) error { return err }
		for name, call := range map[string]func(ctx context.Context) error{
			"Open": func(ctx context.Context) error {
				return second(one.Open(ctx, "/ls/local/f", client.OpenOptions{Read: true}))
			},
			"Get":         func(ctx context.Context) error { _, _, err := one.Get(ctx, "/ls/local/f"); return err },
			"List":        func(ctx context.Context) error { return second(one.List(ctx, "/ls/local")) },
			"Delete":      func(ctx context.Context) error { return one.Delete(ctx, "/ls/local/f") },
			"Acquire":     func(ctx context.Context) error { return second(one.Acquire(ctx, lockPath)) },
			"Acquire Try": func(ctx context.Context) error { return second(one.Acquire(ctx, lockPath, client.Try())) },
			"Do":          func(ctx context.Context) error { return one.Do(ctx, lockPath, work) },
		} {
			cell.Cut("h1")
			if err := brief(call); errors.Is(err, api.Uncertain) || !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "nothing was sent") {
				t.Errorf("%s: %v", name, err)
			}
			cell.Heal("h1")
			noError(t, second(one.Put(ctx, "/ls/local/g", nil))) // once all is settled
		}
		cell.Cut("h1")
		err := brief(func(ctx context.Context) error {
			return second(one.Open(ctx, "/ls/local/new", client.OpenOptions{Read: true, Create: client.File}))
		})
		cell.Heal("h1")
		if !errors.Is(err, api.Uncertain) {
			t.Errorf("an Open that creates: %v", err)
		}
		if called {
			t.Error("Do called its function without the lock")
		}
		if _, _, err := one.Get(ctx, "/ls/local/f"); err != nil {
			t.Error(err)
		}
		if n := handlesOf(ctx, t, one); n != 0 || one.Stats().Handles != 0 {
			t.Errorf("%d handles are open at the cell, %d here", n, one.Stats().Handles)
		}
	})
}
