package client

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// A replica that was deposed and does not know it yet, and answers first, is
// believed once at most: then the master of the later epoch is preferred. Alone
// it is asked.
func TestTwoWhoClaimToBeMaster(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.elect("b:1")
		deposed := answering(&chubbypb.LocateReply{Cell: "foo", Replica: "a:1", Master: "a:1", MasterAddress: "a:1", Epoch: 5})
		f.script(func(s seen) verb {
			switch {
			case s.method == "Locate" && s.address == "a:1":
				return deposed
			case s.method == "Locate":
				return after(10 * time.Millisecond)
			}
			return nil
		})
		cell := f.dialled(f.config())
		find := func() *target {
			found := ok(cell.locator.locate(t.Context(), nil))(t)
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
				return deposed
			}
			return nil
		})
		began := time.Now()
		if found := find(); found.address != "a:1" || time.Since(began) > time.Second {
			t.Errorf("alone: %s, after %v", found.address, time.Since(began))
		}
	})
}

// What a search finds does not replace what was learned while it ran.
func TestLaterWordStays(t *testing.T) {
	inSession(t, func(t *testing.T, _ *fake, c *Client) {
		at := func(address string) *target {
			return ok(c.cell.locator.pool.get(address))(t)
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
	})
}

// While no connection can be had for calls, and the sessions have theirs, the replicas are
// not asked for the master each time that a call fails.
func TestSearchesArePaced(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.NoCache = true
		c := f.client(cfg)
		h := lockable(t, c, 0)
		time.Sleep(3 * time.Minute)
		f.locked(func() { f.down["a:1"] = true })
		f.on("Locate", after(time.Millisecond))
		const limit, most = 10 * time.Second, 10 + 4*10 // with four a second, once the pauses have grown
		before, began := len(f.heard("Locate")), time.Now()
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				noError(t, second(h.Stat(t.Context())))
			})
		}
		time.Sleep(limit)
		if n := len(f.heard("Locate")) - before; n > most*len(addresses()) {
			t.Errorf("the replicas were asked for the master %d times in %v", n, limit)
		}
		f.heal()
		calls.Wait()
		if took := time.Since(began) - limit; took > 2*maxPause+reconnectLongest {
			t.Errorf("calls went on after %v", took)
		}
	})
}

// A search that is given up before it has begun asks nobody, and says nothing of anybody.
func TestSearchGivenUpBeforeItBegan(t *testing.T) {
	inSession(t, func(t *testing.T, _ *fake, c *Client) {
		synctest.Wait() // the first KeepAlive has been sent
		said := c.cell.locator.diagnosis()
		c.cell.locator.mu.Lock()
		c.cell.locator.master, c.cell.locator.nextSearchAt = nil, c.cfg.Clock().Add(maxPause)
		c.cell.locator.mu.Unlock()
		wants(t, "find", second(c.cell.locator.locate(bounded(t, minPause), nil)), context.DeadlineExceeded)
		synctest.Wait()
		if now := c.cell.locator.diagnosis(); now != said {
			t.Errorf("it says %q, and was told %q", now, said)
		}
	})
}

// The pauses between searches grow only while searches find the same master again, one
// after the other.
func TestPausesOfSearchesEnd(t *testing.T) {
	var now session.Instant
	f := &locator{cfg: Config{Clock: func() session.Instant { return now }}}
	rest := func(again bool) time.Duration {
		f.paceSearches(again)
		return f.nextSearchAt.Sub(now)
	}
	for range 20 {
		rest(true)
	}
	if d := rest(true); d < maxPause/2 || d > maxPause {
		t.Errorf("the pause is %v after many", d)
	}
	if d := rest(false); d > 0 {
		t.Errorf("the pause is %v after another was found", d)
	}
	for range 20 {
		rest(true)
	}
	now = now.Add(time.Minute)
	if d := rest(true); d > minPause {
		t.Errorf("the pause is %v after a minute", d)
	}
}

// refuse is what the system says where nothing listens.
func refuse(context.Context, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// Where nothing listens, waiting seldom helps; Config.RefusedFor bounds it. A
// server that is silent is another matter, and so is a cell that was reached.
func TestNothingListens(t *testing.T) {
	const limit = 1500 * time.Millisecond
	runInBubble(t, "nowhere", func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.RefusedFor, cfg.Dialer = limit, refuse
		_, err := New(t.Context(), cfg)
		if !errors.Is(err, NothingListens) || !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "a:1, b:1, c:1") {
			t.Errorf("New: %v", err)
		}
		if took := time.Since(f.began); took < limit || took > limit+time.Second {
			t.Errorf("it took %v", took)
		}
	})
	for name, dial := range map[string]func(context.Context, string) (net.Conn, error){
		"no such host: nobody": func(ctx context.Context, address string) (net.Conn, error) {
			if address == "a:1" {
				return refuse(ctx, address)
			}
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nobody", IsNotFound: true}}
		},
		"the port for clients is 7421 by default, and that of HTTP 7441": func(context.Context, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = theirs.Read(make([]byte, 100))
				_, _ = io.WriteString(theirs, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
				_ = theirs.Close()
			}()
			return ours, nil
		},
	} {
		runInBubble(t, name, func(t *testing.T, f *fake) {
			cfg := f.config()
			cfg.RefusedFor, cfg.Dialer = limit, dial
			_, err := New(bounded(t, time.Minute), cfg)
			why, _, _ := strings.Cut(name, ":")
			if took := time.Since(f.began); !errors.Is(err, NothingListens) || !strings.Contains(err.Error(), why) || took > limit+5*time.Second {
				t.Errorf("New: %v after %v", err, took)
			}
		})
	}
	runInBubble(t, "one is silent", func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.RefusedFor = limit
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			if address == "b:1" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return refuse(ctx, address)
		}
		_, err := New(bounded(t, 10*time.Second), cfg)
		if took := time.Since(f.began); errors.Is(err, NothingListens) || took < 10*time.Second {
			t.Errorf("New: %v after %v", err, took)
		}
	})
	runInBubble(t, "a restart", func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.RefusedFor = limit
		down := func() bool { return time.Since(f.began) < time.Second }
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			if down() {
				return refuse(ctx, address)
			}
			return f.dial(ctx, address)
		}
		c := f.client(cfg)
		synctest.Wait() // both connections have been made, or the second would not be cut
		began := time.Now()
		down = func() bool { return time.Since(began) < 5*time.Second }
		f.cut(addresses()...)
		f.heal()
		if _, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: true}); err != nil {
			t.Errorf("Open in a cell that was reached before: %v", err)
		}
	})
}

// What asks the replicas themselves says at once that nothing listens.
func TestStatusWhereNothingListens(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Dialer = refuse
		cell := f.dialled(cfg)
		if _, err := cell.Status(t.Context()); !errors.Is(err, NothingListens) || time.Since(f.began) > 100*time.Millisecond {
			t.Errorf("Status: %v after %v", err, time.Since(f.began))
		}
	})
}
