package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Replicas that hang, whichever they are, hold up nobody (etcd #8660): the others are asked too. A host that
// swallows packets is like a replica that hangs.
func TestHedging(t *testing.T) {
	for _, test := range []struct {
		hung     []string
		swallows bool
	}{{[]string{"b:1"}, false}, {[]string{"b:1", "c:1"}, false}, {[]string{"b:1", "c:1"}, true}} {
		inBubble(t, func(t *testing.T, f *fake) {
			cfg := f.config()
			if test.swallows {
				cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
					if slices.Contains(test.hung, address) {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return f.dial(ctx, address)
				}
			} else {
				f.when(func(s seen) bool { return slices.Contains(test.hung, s.address) }, hang)
			}
			for range 10 { // the order is one of chance
				began := time.Now()
				c := f.client(cfg)
				if d := time.Since(began); d > 3*hedgeDelay {
					t.Errorf("%+v: New took %v", test, d)
				}
				closeClient(t, c)
			}
		})
	}
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
		f.on("Locate", fail(&api.Error{Code: api.WrongCell, Cell: "qux", Message: "this is a server of cell qux"}))
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
		f.when(func(s seen) bool { return s.method == "Locate" && s.address != "c:1" }, fail(&api.Error{Code: api.WrongCell, Cell: "qux"}))
		f.cut("a:1")
		f.elect("c:1")
		wants(t, "with a stranger", second(c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: true})), nil)
	})
}

// With nobody to talk to the client tries until its context ends, and then says
// whom it asked, what each said, and who was believed to be the master (etcd
// #8660: every failure read "context deadline exceeded").
func TestUnreachable(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cut("a:1")
		f.at("c:1", hang)
		ctx := bounded(t, 10*time.Second)
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
		cell := f.dialled(cfg)
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
	})
}

// Replicas that name each other, or a master that is not ready, are not asked
// in a tight loop.
func TestNoStorm(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		other := map[string]string{"a:1": "b:1", "b:1": "c:1", "c:1": "a:1"}
		for _, code := range []api.Code{api.NotMaster, api.Unavailable, api.StaleEpoch} {
			h := newHandle(c, api.MustParsePath("/ls/foo/x"), OpenOptions{})
			f.script(func(s seen) verb {
				if s.method == "GetStat" {
					return fail(&api.Error{Code: code, Master: other[s.address]})
				}
				return nil
			})
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
	})
}

// One caller that gives up neither stops the search of the others nor makes a
// good master forgotten.
func TestGivingUpDisturbsNobody(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := newHandle(c, api.MustParsePath("/ls/foo/x"), OpenOptions{})
		f.onFirst("GetStat", hang)
		ctx, cancel := context.WithTimeout(t.Context(), lateAfter/2)
		defer cancel()
		before := len(f.heard("Locate"))
		wants(t, "Stat", second(h.Stat(ctx)), context.DeadlineExceeded)
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
		wants(t, "Stat", second(h.Stat(ctx)), context.DeadlineExceeded)
		f.heal()
		wants(t, "the patient one", <-patient, nil)
	})
}

// CreateSession is retried under one nonce, so that it makes one session.
func TestOneSession(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.when(func(s seen) bool { return s.method == "CreateSession" && s.nth <= 2 }, mute)
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
		_, err := New(bounded(t, time.Second), cfg)
		if err == nil || !strings.Contains(err.Error(), "a:1, b:1, c:1: connection refused") || strings.Contains(err.Error(), "desc =") {
			t.Errorf("New: %v", err)
		}
		cell := f.dialled(cfg)
		if _, err := cell.Status(t.Context()); err == nil || strings.Contains(err.Error(), "dial") || !strings.Contains(err.Error(), "a:1: connection refused") {
			t.Errorf("Status: %v", err)
		}
	})
}

// A name service that does not answer delays no search for the master by more than a
// replica that does not, where the servers of the search before are known; neither a
// crash of the master nor one that hangs is noticed by the application.
func TestNameServiceHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		c := f.client(cfg)
		h := lockable(t, c, 0)
		c.cell.locator.mu.Lock()
		c.cell.locator.resolve = func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			return nil, &api.Error{Code: api.Unavailable, Err: ctx.Err()}
		}
		c.cell.locator.mu.Unlock()
		time.Sleep(time.Second)
		f.cut("a:1") // it crashes
		f.elect("b:1")
		began := time.Now()
		must(t, second(h.SetContents(t.Context(), nil)))
		if d := time.Since(began); d > 500*time.Millisecond {
			t.Errorf("a fail-over took %v", d)
		}
		time.Sleep(time.Second)
		f.at("b:1", hang)
		f.elect("c:1")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.states(); len(got) > 0 {
			t.Errorf("states %v", got)
		}
	})
}

// A replica that is configured by another address than it names itself by is one
// replica: calls to a master that is only slow are not taken from it because it is
// found again by its other address.
func TestSlowMasterOfTwoAddresses(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Servers = []string{"also-a:1", "also-b:1", "also-c:1"}
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			return f.dial(ctx, strings.TrimPrefix(address, "also-"))
		}
		c := f.client(cfg)
		h := lockable(t, c, 0)
		f.on("SetContents", after(4*time.Second))
		ctx := bounded(t, time.Minute)
		must(t, second(h.SetContents(ctx, nil)))
		if _, err := h.SetContents(ctx, nil); err != nil || len(f.heard("SetContents")) > 4 {
			t.Errorf("%v; two writes were sent %d times", err, len(f.heard("SetContents")))
		}
	})
}

// The newest list of a cell's replicas counts, whoever tells another one later: a replica that was taken out, one that is behind, or
// one that does not know of all.
func TestNewestListOfReplicasCounts(t *testing.T) {
	list := func(version uint64, servers ...string) *chubbypb.LocateReply {
		return &chubbypb.LocateReply{CellId: "c", Servers: servers, ServersVersion: version}
	}
	var many []string
	for i := range 2 * maxTold {
		many = append(many, fmt.Sprintf("s%d:1", i))
	}
	for _, c := range []struct {
		name string
		told []*chubbypb.LocateReply
		want []string
	}{
		{"never changed", []*chubbypb.LocateReply{list(0)}, nil},
		{"changed", []*chubbypb.LocateReply{list(2, "a:1", "b:1"), list(3, "b:1", "c:1")}, []string{"b:1", "c:1"}},
		{"an older one", []*chubbypb.LocateReply{list(3, "b:1", "c:1"), list(2, "a:1", "b:1"), list(0)}, []string{"b:1", "c:1"}},
		{"one without a version adds", []*chubbypb.LocateReply{list(3, "b:1", "c:1"), list(0, "c:1", "d:1")}, []string{"c:1", "d:1", "b:1"}},
		{"and is replaced", []*chubbypb.LocateReply{list(3, "b:1"), list(0, "d:1"), list(3, "b:1")}, []string{"b:1"}},
		{"of another cell", []*chubbypb.LocateReply{list(3, "b:1"), {CellId: "d", Servers: []string{"e:1"}, ServersVersion: 1}}, []string{"e:1"}},
		{"too many", []*chubbypb.LocateReply{list(1, many...)}, many[:maxTold]},
		{"too many without a version", []*chubbypb.LocateReply{list(0, many[:maxTold]...), list(0, many[maxTold:]...)}, many[maxTold:]},
	} {
		var servers serverList
		for _, reply := range c.told {
			servers.noteTold(reply)
		}
		if !slices.Equal(servers.told, c.want) {
			t.Errorf("%s: %v; want %v", c.name, servers.told, c.want)
		}
	}
}
