package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// dialled is a Cell of the fake, closed at the end of the test.
func (f *fake) dialled(cfg Config) *Cell {
	f.t.Helper()
	cell, err := Dial(f.t.Context(), cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	return cell
}

// A replica that is frozen costs no more than its own answer, even if the caller
// has no more time than one replica may take.
func TestStatusWithAFrozenReplica(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.script(func(s seen) verb {
			if s.address == "c:1" {
				return mute
			}
			return nil
		})
		cell := f.dialled(f.config())
		ctx, cancel := context.WithTimeout(t.Context(), cell.cfg.DialTimeout)
		defer cancel()
		s, err := cell.Status(ctx)
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
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A master that cannot be reached from here is still known by name.
func TestStatusWithoutTheMaster(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cut("a:1")
		cell := f.dialled(f.config())
		s, err := cell.Status(t.Context())
		if err != nil || s.Master != "" || s.Named != "a" || s.Replicas[0].ID != "a" || s.Replicas[0].Err == nil {
			t.Errorf("%+v, %v", s, err)
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Another cell's replicas do not answer for this one.
func TestStatusOfAnotherCell(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.script(func(s seen) verb {
			if s.method == "Locate" {
				return fail(&api.Error{Code: api.WrongCell, Cell: "qux", Message: "this is a server of cell qux"})
			}
			return nil
		})
		cell := f.dialled(f.config())
		var e *api.Error
		if _, err := cell.Status(t.Context()); !errors.As(err, &e) || e.Code != api.WrongCell || e.Cell != "qux" {
			t.Errorf("Status: %v", err)
		}
		if _, err := cell.Members(t.Context()); !errors.As(err, &e) || e.Code != api.WrongCell {
			t.Errorf("Members: %v", err)
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Who asks for the status of a cell whose members come and go leaves no connections behind.
func TestStatusLeavesNoReplicasBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return f.dial(ctx, "a:1") }
		cell, err := Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		moves := 0
		cell.locator.resolve = func(context.Context) ([]string, error) {
			moves++
			return []string{fmt.Sprintf("d%d:1", moves)}, nil
		}
		for range 20 {
			if _, err := cell.Status(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		cell.pool.mu.Lock()
		if n := len(cell.pool.targets); n > 1+len(addresses()) {
			t.Errorf("%d replicas are remembered", n)
		}
		cell.pool.mu.Unlock()
		_ = cell.Close() // it never fails
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
