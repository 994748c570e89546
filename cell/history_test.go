package cell_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/raftfsm"
)

// endsOf returns why the holdings of a lock ended; no two of them may have been at once.
func endsOf(t *testing.T, ctx context.Context, c *client.Client, path string) (list []api.EndReason) {
	t.Helper()
	h, err := c.Cell().History(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if a, b, found := h.Overlap(); found {
		t.Errorf("two held %s at once: %+v and %+v", path, a, b)
	}
	for _, one := range h.Holdings {
		if one.Session == 0 || one.Principal == "" || one.Generation == 0 || (one.Until == 0) != (one.End == 0) {
			t.Errorf("a holding is %+v", one)
		}
		list = append(list, one.End)
	}
	return list
}

// The cell remembers who held a lock, over fail-overs, and whose client was lost in one.
func TestHistoryOfALock(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path, delay = "/ls/local/lock", 3 * time.Second
		next := dial(t, ctx, c, "next", client.Config{})
		h := open(t, ctx, next, path, delay)
		if err := acquire(t, ctx, h).Release(ctx); err != nil {
			t.Fatal(err)
		}
		for _, failsOver := range []bool{false, true} {
			lost := dial(t, ctx, c, "lost", client.Config{})
			acquire(t, ctx, open(t, ctx, lost, path, delay))
			c.Cut("lost")
			if failsOver {
				c.Restart(c.FailOver())
			}
			if err := acquire(t, ctx, h).Release(ctx); err != nil {
				t.Fatal(err)
			}
			c.Heal("lost")
		}
		lock := acquire(t, ctx, h)
		want := []api.EndReason{api.ByClose, api.ByExpiry, api.ByClose, api.ByFailOver, api.ByClose, 0}
		for range 3 { // masters
			got := endsOf(t, ctx, next, path)
			if len(got) != len(want) {
				t.Fatalf("the holdings ended %v, want %v", got, want)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("the holdings ended %v, want %v", got, want)
				}
			}
			c.Restart(c.FailOver())
		}
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
		if _, err := next.Cell().History(ctx, "/ls/local/none"); !errors.Is(err, api.NotFound) {
			t.Errorf("the history of no node: %v", err)
		}
	})
}

// A client that returned to a new master, and is lost after that, expires: it was not lost in the fail-over.
func TestReturnedClientsAreNotLostInAFailOver(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path = "/ls/local/lock"
		next := dial(t, ctx, c, "next", client.Config{})
		acquire(t, ctx, open(t, ctx, dial(t, ctx, c, "lost", client.Config{}), path, time.Second))
		c.Restart(c.FailOver())
		time.Sleep(30 * time.Second)
		c.Cut("lost")
		acquire(t, ctx, open(t, ctx, next, path, time.Second))
		if got := endsOf(t, ctx, next, path); len(got) != 2 || got[0] != api.ByExpiry {
			t.Errorf("the holdings ended %v", got)
		}
	})
}

// A cell whose upgrade is not finished remembers nothing, and says so.
func TestHistoryNeedsItsLevel(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "by", client.Config{})
		open(t, ctx, by, "/ls/local/lock", 0)
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // the library tries for as long as it may, and to ask costs more than to wait
		defer cancel()
		if _, err := by.Cell().History(ctx, "/ls/local/lock"); !errors.Is(err, api.Unavailable) {
			t.Errorf("%v", err)
		}
	}, func(cfg *cell.Config) { cfg.Support(raftfsm.HistoryLevel - 1) })
}
