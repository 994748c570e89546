package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// A replica that is frozen costs no more than its own answer, even if the caller
// has no more time than one replica may take.
func TestStatusWithAFrozenReplica(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.at("c:1", mute)
		cell := f.dialled(f.config())
		s, err := cell.Status(bounded(t, cell.cfg.DialTimeout))
		if err != nil || s.Master != "a" || len(s.Replicas) != 3 {
			t.Fatalf("%+v, %v", s, err)
		}
		for i, id := range []string{"a", "b", "c"} {
			if r := s.Replicas[i]; r.ID != id || (r.Err != nil) != (id == "c") {
				t.Errorf("row %d: %+v", i, r)
			}
		}
		began := time.Now()
		if _, err := cell.Members(t.Context()); err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("Members: %v after %v", err, time.Since(began))
		}
	})
}

// Another cell's replicas do not answer for this one.
func TestStatusOfAnotherCell(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.on("Locate", fail(&api.Error{Code: api.WrongCell, Cell: "qux", Message: "this is a server of cell qux"}))
		cell := f.dialled(f.config())
		var e *api.Error
		if _, err := cell.Status(t.Context()); !errors.As(err, &e) || e.Code != api.WrongCell || e.Cell != "qux" {
			t.Errorf("Status: %v", err)
		}
		if _, err := cell.Members(t.Context()); !errors.As(err, &e) || e.Code != api.WrongCell {
			t.Errorf("Members: %v", err)
		}
	})
}

// Who asks for the status of a cell whose members come and go leaves no connections behind.
func TestStatusLeavesNoReplicasBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return f.dial(ctx, "a:1") }
		cell := f.dialled(cfg)
		moves := 0
		cell.locator.resolve = func(context.Context) ([]string, error) {
			moves++
			return []string{fmt.Sprintf("d%d:1", moves)}, nil
		}
		for range 20 {
			must(t, second(cell.Status(t.Context())))
		}
		cell.pool.mu.Lock()
		if n := len(cell.pool.targets); n > 1+len(addresses()) {
			t.Errorf("%d replicas are remembered", n)
		}
		cell.pool.mu.Unlock()
	})
}

// Looking needs no session, and shows replicas that do not answer.
func TestStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Servers = []string{"b:1"}
		cell := f.dialled(cfg)
		f.cut("c:1")
		s := ok(cell.Status(t.Context()))(t)
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
		f.cut("a:1")
		s = ok(cell.Status(t.Context()))(t)
		if s.Master != "" || s.Named != "a" || s.Replicas[0].ID != "a" || s.Replicas[0].Err == nil {
			t.Errorf("the master cannot be reached, and is known by name: %+v", s)
		}
		f.cut(addresses()...)
		if _, err := cell.Status(t.Context()); !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "b:1") {
			t.Errorf("with nobody there: %v", err)
		}
	})
}

// A refusal names who holds the lock so that a person can go and ask.
func TestRefusalNamesHolders(t *testing.T) {
	err := nameHolders(&api.Error{Code: api.LockHeld, Message: "try again later", Holders: []api.Holder{
		{Session: 42, Principal: "ann", Host: "web3", PID: 4711, Reason: "deploy"}, {Session: 43}, {Session: 44}, {Session: 45}, {Session: 46},
	}})
	want := "held by ann on web3 (pid 4711, s42: deploy), somebody on an unknown host (pid 0, s43), " +
		"somebody on an unknown host (pid 0, s44), 2 more; try again later (LockHeld)"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	inBubble(t, func(t *testing.T, f *fake) {
		c, other := f.client(f.config()), f.client(f.config())
		must(t, second(lockable(t, other, 0).Acquire(t.Context(), api.Exclusive)))
		h := lockable(t, c, 0)
		_, waited := h.Acquire(bounded(t, time.Second), api.Exclusive)
		_, tried := h.TryAcquire(t.Context(), api.Exclusive)
		for _, err := range []error{waited, tried} {
			var e *api.Error
			if !errors.As(err, &e) || len(e.Holders) != 1 || !strings.Contains(err.Error(), "held by "+whoHolds(e.Holders)) {
				t.Errorf("%v", err)
			}
		}
	})
}

// A session that the cell has ended is said to be over once.
func TestSessionExpiredSaysItOnce(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.when(func(seen) bool { return true }, fail(api.Errorf(api.SessionExpired, "session s1 has ended; open a new one")))
		_, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: true})
		if !errors.Is(err, api.SessionExpired) || strings.Count(err.Error(), "open a new") != 1 {
			t.Errorf("%v", err)
		}
	})
}

// A handle that is to be for nothing is refused here, whether or not the cell answers.
func TestOpenForNothing(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		_, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Create: Directory})
		if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "Read, Write or ChangeACL") || len(f.heard("Open")) != 0 {
			t.Errorf("%v", err)
		}
	})
}

// A client that finds no cell says so to its log, soon, and not too often.
func TestSearchIsLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var text bytes.Buffer
		cfg := f.config()
		cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
		f.cut(addresses()...)
		if _, err := New(bounded(t, 35*time.Second), cfg); !errors.Is(err, api.Unavailable) {
			t.Fatal(err)
		}
		if n := strings.Count(text.String(), "no master of the cell has been found yet"); n != 4 || !strings.Contains(text.String(), "a:1") {
			t.Errorf("%d lines in 35 s:\n%s", n, text.String())
		}
	})
}

// Of a session that is in jeopardy, and of one that is safe again, there is a line of the log that has no error: there is none.
func TestNoErrorIsLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var text bytes.Buffer
		cfg := f.config()
		cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
		c := f.client(cfg)
		f.cut(addresses()...)
		time.Sleep(20 * time.Second)
		f.heal()
		time.Sleep(20 * time.Second)
		closeClient(t, c)
		synctest.Wait() // what logs is a goroutine of its own
		if log := text.String(); !strings.Contains(log, "the session is jeopardy") || strings.Contains(log, "error=<nil>") {
			t.Error(log)
		}
	})
}

// A file of a token that is not there is said, and not what would be missing beside the token.
func TestTokenIsReadFirst(t *testing.T) {
	t.Setenv("CHUBBY_CONFIG", "")
	t.Setenv("HOME", t.TempDir())
	_, err := Dial(t.Context(), Config{Cell: "foo", Servers: []string{"h:1"}, Credentials: TokenFile("/nofile")})
	if !errors.Is(err, api.InvalidArgument) || strings.Count(err.Error(), "/nofile") != 1 || strings.Contains(err.Error(), "CA") {
		t.Error(err)
	}
}

// A call that is about to be sent when another master is found does not go to the
// one before, which may never answer.
func TestCallIsNotSentToASupersededMaster(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		before := ok(c.cell.locator.locate(t.Context(), nil))(t)
		f.at("b:1", after(time.Minute)) // or a KeepAlive would be led back by it
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
	})
}

// What is asked of replicas, because each is to answer for itself, goes on when one
// of them is found to be the master.
func TestStatusWhileAMasterIsFound(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Servers = []string{"a:1"} // it names the others
		cell := f.dialled(cfg)
		f.when(func(s seen) bool { return s.method == "Status" && s.address != "a:1" }, after(time.Second))
		go func() {
			time.Sleep(500 * time.Millisecond)
			_, _ = cell.locator.locate(t.Context(), nil)
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
	})
}

// A handle that is closed when another master has been heard of, and the cache not
// been emptied yet, is closed at that one: it may have it open.
func TestHandleClosedInANewEpochIsNotKept(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.cacheable, f.reusable = true, true
		h := opened(t, c, "/ls/foo/x", OpenOptions{Read: true})
		synctest.Wait()
		f.locked(func() { f.epoch++ })
		c.session.applyGrant(c.cfg.Clock(), session.Grant{Epoch: c.Epoch() + 1, Number: 1, Lease: 12 * time.Second})
		must(t, h.Close(t.Context()))
		if n := len(f.heard("CloseHandle")); n != 1 {
			t.Errorf("%d calls of Close, want 1", n)
		}
	})
}

// The grants of an epoch are counted anew: the master is not told that one was
// heard of which it has not made yet, or it would not repeat it when it is lost.
func TestGrantsAreCountedAnewInEachEpoch(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		synctest.Wait()
		c.session.applyGrant(c.cfg.Clock(), session.Grant{Epoch: 5, Number: 500, Lease: 12 * time.Second})
		if n := c.session.newestGrant(); n != 500 {
			t.Errorf("newest %d", n)
		}
		c.session.applyGrant(c.cfg.Clock(), session.Grant{Epoch: 6}) // of a master that wants a sign of life first
		if n := c.session.newestGrant(); n != 0 {
			t.Errorf("newest %d of an epoch without any", n)
		}
		f.locked(func() { f.epoch = 6 })
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
		_, err := cell.Status(bounded(t, 10*time.Millisecond))
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.Unavailable || errors.Is(err, Closed) || !errors.Is(err, context.DeadlineExceeded) ||
			!slices.Equal([]string{e.Op, e.Path}, []string{"ask for status", "/ls/foo"}) {
			t.Errorf("%v", err)
		}
	})
}
