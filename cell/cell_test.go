package cell_test

import (
	"context"
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
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		test(t, ctx, celltest.Start(t, replicas, edits...))
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
	cl, err := client.New(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		done, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = cl.Close(done) // its cell may be cut off
	})
	return cl
}

func open(t *testing.T, ctx context.Context, c *client.Client, path string, delay time.Duration) *client.Handle {
	t.Helper()
	h, err := c.Open(ctx, path, client.OpenOptions{Read: true, Write: true, Create: client.File, LockDelay: delay})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func acquire(t *testing.T, ctx context.Context, h *client.Handle) *client.Lock {
	t.Helper()
	l, err := h.Acquire(ctx, api.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
