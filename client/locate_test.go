package client

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Replicas that hang, whichever they are, hold up nobody (etcd #8660): the
// others are asked too.
func TestHedging(t *testing.T) {
	for _, hung := range [][]string{{"b:1"}, {"b:1", "c:1"}} {
		inBubble(t, func(t *testing.T, f *fake) {
			f.script(func(s seen) verb {
				if slices.Contains(hung, s.address) {
					return hang
				}
				return nil
			})
			for range 10 { // the order is one of chance
				began := time.Now()
				c := f.client(f.config())
				if d := time.Since(began); d > 3*hedgeDelay {
					t.Errorf("with %v hung New took %v", hung, d)
				}
				closeClient(t, c)
			}
		})
	}
}

// A host that swallows packets is like a replica that hangs.
func TestBlackHole(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			if address != "a:1" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return f.dial(ctx, address)
		}
		began := time.Now()
		c := f.client(cfg)
		if d := time.Since(began); d > 3*hedgeDelay {
			t.Errorf("New took %v", d)
		}
		closeClient(t, c)
	})
}

// A server of another cell ends the search at once, and is named.
func TestWrongCell(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Cell = "bar"
		began := time.Now()
		_, err := New(t.Context(), cfg)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.WrongCell || e.Cell != "foo" || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		cfg.Cell = "foo"
		f.script(func(s seen) verb {
			if s.method == "Locate" {
				return fail(&api.Error{Code: api.WrongCell, Cell: "qux", Message: "this is a server of cell qux"})
			}
			return nil
		})
		if _, err := New(t.Context(), cfg); !errors.As(err, &e) || e.Code != api.WrongCell || e.Cell != "qux" {
			t.Errorf("%v", err)
		}
		f.script(nil)
		c := f.client(cfg)
		if _, err := c.Open(t.Context(), "/ls/bar/x", OpenOptions{Read: true}); !errors.As(err, &e) || e.Code != api.WrongCell {
			t.Errorf("a path in another cell: %v", err)
		}
		// A session that has found its cell is not disturbed by a stranger at one
		// of the addresses.
		f.script(func(s seen) verb {
			if s.method == "Locate" && s.address != "c:1" {
				return fail(&api.Error{Code: api.WrongCell, Cell: "qux"})
			}
			return nil
		})
		f.cut("a:1")
		f.elect("c:1")
		if _, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: true}); err != nil {
			t.Errorf("with a stranger: %v", err)
		}
		closeClient(t, c)
	})
}

// With nobody to talk to the client tries until its context ends, and then says
// whom it asked, what each said, and who was believed to be the master (etcd
// #8660: every failure read "context deadline exceeded").
func TestUnreachable(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cut("a:1")
		f.script(func(s seen) verb {
			if s.address == "c:1" {
				return hang
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := New(ctx, f.config())
		if !errors.Is(err, api.Unavailable) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for _, part := range []string{"a:1", "connection refused", "b:1 (b:1) believes that a:1 at a:1 is the master", "c:1: no answer"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
	})
}

// The sources are read again at every round, so a cell that moved is found
// (user complaints about clients that look names up once). While they cannot be
// read, the last answer serves.
func TestResolvedEveryRound(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cell, err := Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		rounds := 0
		cell.locator.resolve = func(context.Context) ([]string, error) {
			switch rounds++; {
			case rounds < 3:
				return []string{"gone:1"}, nil
			case rounds < 5:
				return nil, &api.Error{Code: api.Unavailable, Message: "the name service does not answer"}
			}
			return addresses(), nil
		}
		if err := cell.CheckSequencer(t.Context(), "x"); !errors.Is(err, api.BadSequencer) || rounds < 5 {
			t.Errorf("%v after %d rounds", err, rounds)
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Replicas that name each other, or a master that is not ready, are not asked
// in a tight loop.
func TestNoStorm(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		other := map[string]string{"a:1": "b:1", "b:1": "c:1", "c:1": "a:1"}
		for _, script := range []func(s seen) verb{
			func(s seen) verb {
				if s.method == "GetStat" {
					return fail(&api.Error{Code: api.NotMaster, Master: other[s.address]})
				}
				return nil
			},
			func(s seen) verb {
				if s.method == "GetStat" {
					return fail(api.Unavailable)
				}
				return nil
			},
			func(s seen) verb {
				if s.method == "GetStat" {
					return fail(api.StaleEpoch)
				}
				return nil
			},
		} {
			h := newHandle(c, api.MustParsePath("/ls/foo/x"), OpenOptions{})
			f.script(script)
			before := len(f.heard("GetStat")) + len(f.heard("Locate"))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if _, err := h.Stat(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, api.Unavailable) {
				t.Errorf("%v", err)
			}
			cancel()
			if n := len(f.heard("GetStat")) + len(f.heard("Locate")) - before; n < 5 || n > 150 {
				t.Errorf("%d calls in 10 s", n)
			}
		}
		f.script(nil)
		closeClient(t, c)
	})
}

// One caller that gives up neither stops the search of the others nor makes a
// good master forgotten.
func TestGivingUpDisturbsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := newHandle(c, api.MustParsePath("/ls/foo/x"), OpenOptions{})
		f.script(func(s seen) verb {
			if s.method == "GetStat" && s.nth == 1 {
				return hang
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), lateAfter/2)
		defer cancel()
		before := len(f.heard("Locate"))
		if _, err := h.Stat(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		c.cell.locator.mu.Lock()
		known := c.cell.locator.master != nil
		c.cell.locator.mu.Unlock()
		if !known || len(f.heard("Locate")) != before {
			t.Errorf("the master was forgotten")
		}

		f.cut(addresses()...)
		time.Sleep(time.Second)
		patient := make(chan error)
		go func() { _, err := h.Stat(t.Context()); patient <- err }()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Stat(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		f.heal()
		if err := <-patient; err != nil {
			t.Errorf("the patient one: %v", err)
		}
		closeClient(t, c)
	})
}

// A master whose machine stops closes no connection: another is looked for as soon
// as a call waits, and found when there is one. Nobody has to wait for CallTimeout.
func TestMasterStops(t *testing.T) {
	call := map[string]func(context.Context, *Handle) error{
		"Stat":    func(ctx context.Context, h *Handle) error { _, err := h.Stat(ctx); return err },
		"Acquire": func(ctx context.Context, h *Handle) error { _, err := h.Acquire(ctx, api.Exclusive); return err },
	}
	for name, elected := range map[string]time.Duration{"Stat": lateAfter / 2, "Acquire": 2 * lateAfter} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				var stopped atomic.Bool
				f.script(func(s seen) verb {
					if s.address == "a:1" && (stopped.Load() || s.method == "KeepAlive") {
						return hang
					}
					return nil
				})
				c := f.client(f.config())
				h := lockable(t, c, 0)
				stopped.Store(true)
				time.AfterFunc(elected, func() { f.elect("b:1") })
				began := time.Now()
				if err := call[name](t.Context(), h); err != nil {
					t.Error(err)
				}
				if d, most := time.Since(began), max(elected, lateAfter)+time.Second; d > most {
					t.Errorf("it took %v, want %v at most", d, most)
				}
				closeClient(t, c)
			})
		})
	}
}

// One that is only slow stays the master, and the call goes on: it is not sent
// again, and the replicas are asked once.
func TestMasterIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := newHandle(c, api.MustParsePath("/ls/foo/x"), OpenOptions{})
		f.script(func(s seen) verb {
			if s.method == "GetStat" {
				return after(4 * lateAfter)
			}
			return nil
		})
		before := len(f.heard("Locate"))
		if _, err := h.Stat(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(f.heard("GetStat")); n != 1 {
			t.Errorf("the call was sent %d times", n)
		}
		if n := len(f.heard("Locate")) - before; n != len(addresses()) {
			t.Errorf("%d times a replica was asked for the master", n)
		}
		closeClient(t, c)
	})
}

// When another master is found, whoever still waits for the one before asks the
// new one at once, and not when its own patience is over.
func TestSuperseded(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := newHandle(c, api.MustParsePath("/ls/foo/x"), OpenOptions{})
		f.script(func(s seen) verb {
			if s.method == "GetStat" && s.nth == 1 {
				return hang
			}
			return nil
		})
		began := time.Now()
		first := make(chan error)
		go func() { _, err := h.Stat(t.Context()); first <- err }()
		time.Sleep(time.Second)
		f.elect("b:1")
		if _, err := h.Stat(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-first; err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		closeClient(t, c)
	})
}

// Looking needs no session, and shows replicas that do not answer.
func TestStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Servers = []string{"b:1"}
		cell, err := Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		f.cut("c:1")
		s, err := cell.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Cell != "foo" || s.Master != "a" || s.Epoch != 5 || len(s.Replicas) != 3 {
			t.Errorf("%+v", s)
		}
		for i, want := range []ReplicaStatus{{ID: "a", Role: "master"}, {ID: "b", Role: "replica", Lag: 10}, {ID: "c"}} {
			got := s.Replicas[i]
			if got.ID != want.ID || got.Role != want.Role || got.Lag != want.Lag || (got.Err != nil) != (want.Role == "") {
				t.Errorf("replica %d: %+v", i, got)
			}
		}
		members, err := cell.Members(t.Context())
		if err != nil || len(members) != 3 || members[0].ID != "a" || len(f.heard("CreateSession")) != 0 {
			t.Errorf("%v, %v", members, err)
		}
		f.cut(addresses()...)
		if _, err := cell.Status(t.Context()); !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "b:1") {
			t.Errorf("with nobody there: %v", err)
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}

// CreateSession is retried under one nonce, so that it makes one session.
func TestOneSession(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.script(func(s seen) verb {
			if s.method == "CreateSession" && s.nth <= 2 {
				return mute
			}
			return nil
		})
		c := f.client(f.config())
		calls := f.heard("CreateSession")
		f.mu.Lock()
		n := len(f.sessions)
		f.mu.Unlock()
		if n != 1 || len(calls) != 3 {
			t.Errorf("%d sessions, %d calls", n, len(calls))
		}
		// The lease counts from the request that was answered, not from the first.
		if left := c.Left(); left > localLease || left < localLease-time.Second {
			t.Errorf("left %v", left)
		}
		if nonce := calls[0].request.(*chubbypb.CreateSessionRequest).GetNonce(); len(nonce) != nonceSize {
			t.Errorf("nonce %x", nonce)
		}
		closeClient(t, c)
	})
}

// Of a cell that cannot be reached one reads, for each server, what the system
// said, and nothing of the layers between.
func TestRefusalIsPlain(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Dialer = func(context.Context, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errors.New("connection refused"))}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := New(ctx, cfg)
		if err == nil || !strings.Contains(err.Error(), "a:1: connection refused; b:1: connection refused; c:1: connection refused") || strings.Contains(err.Error(), "desc =") {
			t.Errorf("New: %v", err)
		}
		cell, err := Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cell.Status(t.Context()); err == nil || strings.Contains(err.Error(), "dial") || !strings.Contains(err.Error(), "a:1: connection refused") {
			t.Errorf("Status: %v", err)
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A replica that was deposed and does not know it yet, and answers first, is
// believed once at most: then the master of the later epoch is preferred. Alone
// it is asked.
func TestTwoWhoClaimToBeMaster(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.elect("b:1")
		f.script(func(s seen) verb {
			switch {
			case s.method == "Locate" && s.address == "a:1":
				return func(context.Context, func() (any, error)) (any, error) {
					return &chubbypb.LocateReply{Cell: "foo", Replica: "a:1", Master: "a:1", MasterAddress: "a:1", Epoch: 5}, nil
				}
			case s.method == "Locate":
				return after(10 * time.Millisecond)
			}
			return nil
		})
		cell, err := Dial(t.Context(), f.config())
		if err != nil {
			t.Fatal(err)
		}
		find := func() *target {
			found, err := cell.locator.locate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cell.locator.forgetMaster(found)
			return found
		}
		for i := range 20 { // the order is one of chance
			if found := find(); found.address != "b:1" && i > 0 {
				t.Errorf("%d: %s", i, found.address)
			}
		}
		f.script(func(s seen) verb {
			switch {
			case s.address != "a:1":
				return hang
			case s.method == "Locate":
				return func(context.Context, func() (any, error)) (any, error) {
					return &chubbypb.LocateReply{Cell: "foo", Replica: "a:1", Master: "a:1", MasterAddress: "a:1", Epoch: 5}, nil
				}
			}
			return nil
		})
		began := time.Now()
		if found := find(); found.address != "a:1" || time.Since(began) > time.Second {
			t.Errorf("alone: %s, after %v", found.address, time.Since(began))
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What a search finds does not replace what was learned while it ran.
func TestLaterWordStays(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		at := func(address string) *target {
			one, err := c.cell.locator.pool.get(address)
			if err != nil {
				t.Fatal(err)
			}
			return one
		}
		old, next := at("a:1"), at("b:1")
		if !c.cell.locator.redirect(old, next.address) || c.cell.locator.believedMaster() != next {
			t.Fatal("nobody followed")
		}
		if got := c.cell.locator.setMaster(old, old); got != next || c.cell.locator.believedMaster() != next {
			t.Errorf("%s is believed", got.address)
		}
		c.cell.locator.forgetMaster(next)
		if got := c.cell.locator.setMaster(old, nil); got != old {
			t.Errorf("%s is believed", got.address)
		}
		closeClient(t, c)
	})
}
