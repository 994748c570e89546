package cell_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// inLoaded runs a test in a cell whose master wants at most two KeepAlives a
// second, as one with very many sessions would.
func inLoaded(t *testing.T, test func(t *testing.T, ctx context.Context, c *celltest.Cell)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		test(t, ctx, celltest.Start(t, 3, func(cfg *cell.Config) { cfg.KeepAlives = 2 }))
	})
}

// Chubby §2.8: under load leases grow from 12 s, by session.Lengthen, and
// shrink again; a session that asked for a short lease keeps it.
func TestLeasesGrowUnderLoad(t *testing.T) {
	inLoaded(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const sessions = 20 // with leases of 12 s they would send 2.9 KeepAlives a second
		short := dial(t, ctx, c, "short", client.Config{Lease: 3 * time.Second})
		var many []*client.Client
		for i := range sessions {
			many = append(many, dial(t, ctx, c, fmt.Sprint("h", i), client.Config{}))
		}
		time.Sleep(time.Minute)
		for i, cl := range many {
			if got := cl.Lease(); got != 24*time.Second {
				t.Errorf("session %d: a lease of %v", i, got)
			}
		}
		for _, cl := range many[4:] {
			if err := cl.Close(ctx); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		for i, cl := range many[:4] {
			if got := cl.Lease(); got != 12*time.Second || cl.Err() != nil {
				t.Errorf("session %d, when the others have gone: a lease of %v, %v", i, got, cl.Err())
			}
		}
		if short.Lease() != 3*time.Second || short.Err() != nil {
			t.Errorf("the session that asked for 3 s has %v: %v", short.Lease(), short.Err())
		}
	})
}

// Chubby §2.9, step 3: a new master extends a session to the longest lease that
// its predecessor may have granted, even if that is more than the session asked
// for.
func TestTakeoverHonoursLongLeases(t *testing.T) {
	inLoaded(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		for i := range 40 { // so that leases are 36 s
			dial(t, ctx, c, fmt.Sprint("h", i), client.Config{})
		}
		held := acquire(t, ctx, open(t, ctx, dial(t, ctx, c, "holder", client.Config{}), "/ls/local/lock", 0))
		next := open(t, ctx, dial(t, ctx, c, "next", client.Config{}), "/ls/local/lock", 0)
		time.Sleep(2 * time.Minute)
		c.Cut("holder")
		time.Sleep(time.Second)
		began := time.Now()
		c.Kill(c.Master())
		l, err := next.Acquire(ctx, api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		if held.Err() == nil {
			t.Errorf("two clients hold the lock, %v after the fail-over", time.Since(began))
		}
		if took := time.Since(began); took < 30*time.Second || took > 45*time.Second {
			t.Errorf("the lock passed on after %v; the holder had been granted 36 s", took)
		}
		if l.Token() <= held.Token() {
			t.Errorf("token %d after %d", l.Token(), held.Token())
		}
	})
}

// A drill ends a session as if its lease had run out.
func TestExpireSession(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "unlucky", client.Config{})
		held := acquire(t, ctx, open(t, ctx, cl, "/ls/local/lock", 5*time.Second))
		master := c.Master()
		for _, m := range c.Servers() {
			if id := m[:2]; id != master {
				if err := c.Replica(id).ExpireSession(ctx, cl.Session()); !errors.Is(err, api.NotMaster) {
					t.Errorf("on %s: %v", id, err)
				}
			}
		}
		if err := c.Replica(master).ExpireSession(ctx, cl.Session()); err != nil {
			t.Fatal(err)
		}
		<-held.Context().Done()
		if !errors.Is(cl.Err(), client.EndedByCell) {
			t.Errorf("%v", cl.Err())
		}
		if err := c.Replica(master).ExpireSession(ctx, cl.Session()); !errors.Is(err, api.NotFound) {
			t.Errorf("again: %v", err)
		}
	})
}

// A planned hand-over has no effect on sessions and locks.
func TestTransfer(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		var changes []client.StateChange
		cl := dial(t, ctx, c, "holder", client.Config{OnState: func(s client.StateChange) { changes = append(changes, s) }})
		h := open(t, ctx, cl, "/ls/local/lock", 0)
		held := acquire(t, ctx, h)
		for range 10 {
			from := c.Master()
			to := map[string]string{"r1": "r2"}[from]
			if to == "" {
				to = "r1"
			}
			if err := c.Replica(from).Transfer(ctx, to); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if _, err := h.SetContents(ctx, nil); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 200*time.Millisecond {
				t.Errorf("a write took %v", took)
			}
			if got := c.Master(); got != to {
				t.Errorf("the master is %s, not %s", got, to)
			}
		}
		if held.Err() != nil || len(changes) != 0 {
			t.Errorf("the lock: %v; the session went through %v", held.Err(), changes)
		}
		if err := c.Replica(c.Master()).Transfer(ctx, "r9"); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("to nobody: %v", err)
		}
	})
}
