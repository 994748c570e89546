package cell_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// inCell runs a test in a bubble of virtual time, with a cell of three replicas, which still has a
// majority when its master dies.
func inCell(t *testing.T, test func(t *testing.T, ctx context.Context, c *celltest.Cell), edits ...func(*cell.Config)) {
	t.Helper()
	inCellOf(t, 3, test, edits...)
}

// inCellOf is inCell with that many replicas. One is enough for tests in which the master does not
// fail, and is the cheapest: there are no heartbeats.
func inCellOf(t *testing.T, replicas int, test func(t *testing.T, ctx context.Context, c *celltest.Cell), edits ...func(*cell.Config)) {
	t.Helper()
	inBubble(t, 30*time.Minute, func(t *testing.T, ctx context.Context) {
		test(t, ctx, celltest.Start(t, replicas, edits...))
	})
}

// inBubble runs a test in a bubble of virtual time, and gives it a context with that timeout.
func inBubble(t *testing.T, timeout time.Duration, test func(t *testing.T, ctx context.Context)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		test(t, ctx)
	})
}

// dial opens a session on a host of its own, closed at the end of the test.
func dial(t *testing.T, ctx context.Context, c *celltest.Cell, host string, cfg client.Config) *client.Client {
	t.Helper()
	if cfg.Servers == nil {
		cfg.Servers = c.Servers()
	}
	if cfg.Dialer == nil {
		cfg.Dialer = c.DialFrom(host)
	}
	cfg.Clock = celltest.Clock
	cl := must(client.New(ctx, cfg))(t)
	t.Cleanup(func() {
		done, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = cl.Close(done) // its cell may be cut off
	})
	return cl
}

func open(t *testing.T, ctx context.Context, c *client.Client, path string, delay time.Duration) *client.Handle {
	t.Helper()
	return must(c.Open(ctx, path, client.OpenOptions{Read: true, Write: true, Create: client.File, LockDelay: delay}))(t)
}

func acquire(t *testing.T, ctx context.Context, h *client.Handle) *client.Lock {
	t.Helper()
	return must(h.Acquire(ctx, api.Exclusive))(t)
}

// must returns what a call returned that had to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noErr(t, err)
		return value
	}
}

// noErr ends the test if there is an error; what says of what.
func noErr(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(append(what, err)...)
	}
}

// report fails the test if there is an error, and lets it go on.
func report(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Error(append(what, err)...)
	}
}

// errOf returns the error of a call alone.
func errOf[T any](_ T, err error) error { return err }

// equal fails the test unless got is want; what is a format for got.
func equal[T comparable](t testing.TB, got, want T, what string) {
	t.Helper()
	if got != want {
		t.Errorf(what+"; want %v", got, want)
	}
}

// fails fails the test unless err has this code, and lets it go on.
func fails(t testing.TB, err error, code api.Code, what ...any) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Error(append(what, err, "want", code)...)
	}
}

// mustFail ends the test unless err has this code.
func mustFail(t testing.TB, err error, code api.Code, what ...any) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Fatal(append(what, err, "want", code)...)
	}
}

// failIf fails the test, which goes on, if something is wrong.
func failIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// stopIf ends the test if something is wrong.
func stopIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}
