package cell_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/internal/testbed"
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

// calm has replicas stand for election as late as they may, so that heartbeats are few: for tests that let much time pass, and do not
// ask how soon a master is replaced.
func calm(cfg *cell.Config) { cfg.ElectionTimeout = cell.MaxElectionTimeout }

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

// reads reads a file so often: the first time fills a cache, the second asks for the lease to use it.
func reads(t *testing.T, ctx context.Context, h *client.Handle, times int) {
	t.Helper()
	for range times {
		_, _, err := h.Contents(ctx)
		noErr(t, err)
	}
}

// The checks of testbed, for the tests of this package.

func must[T any](value T, err error) func(testbed.TB) T { return testbed.Must(value, err) }
func noErr(t testbed.TB, err error, what ...any)        { t.Helper(); testbed.NoErr(t, err, what...) }
func report(t testbed.TB, err error, what ...any)       { t.Helper(); testbed.Report(t, err, what...) }
func errOf[T any](_ T, err error) error                 { return err }
func equal[T comparable](t testbed.TB, got, want T, what string) {
	t.Helper()
	testbed.Equal(t, got, want, what)
}
func fails(t testbed.TB, err, want error, what ...any) {
	t.Helper()
	testbed.Fails(t, err, want, what...)
}
func mustFail(t testbed.TB, err, want error, what ...any) {
	t.Helper()
	testbed.MustFail(t, err, want, what...)
}
func failIf(t testbed.TB, wrong bool, format string, args ...any) {
	t.Helper()
	testbed.FailIf(t, wrong, format, args...)
}
func stopIf(t testbed.TB, wrong bool, format string, args ...any) {
	t.Helper()
	testbed.StopIf(t, wrong, format, args...)
}
