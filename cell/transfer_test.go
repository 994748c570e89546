package cell_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// other returns a replica that is not the master.
func other(c *celltest.Cell) string {
	if c.Master() == "r5" {
		return "r4"
	}
	return "r5"
}

// A hand-over to a replica that is down, or has stopped, is refused before
// anything is done, however often it is tried. It refuses or delays no change,
// and a master that is deposed in between can become master again.
func TestTransferToADeadReplica(t *testing.T) {
	for _, trouble := range []struct {
		name string
		make func(c *celltest.Cell, id string)
	}{
		{"killed", (*celltest.Cell).Kill},
		{"paused", func(c *celltest.Cell, id string) { c.Pause(id) }},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			inCellOf(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				cl := dial(t, ctx, c, "client", client.Config{})
				h := open(t, ctx, cl, "/ls/local/f", 0)
				from, dead := c.Master(), other(c)
				trouble.make(c, dead)
				if _, err := h.SetContents(ctx, []byte("so that it is behind")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute) // Raft contacts it less and less often
				for range 3 {
					began := time.Now()
					if err := c.Replica(from).Transfer(ctx, dead); !errors.Is(err, api.Unavailable) {
						t.Errorf("handed over to a replica that was %s: %v", trouble.name, err)
					}
					if took := time.Since(began); took > 2*time.Second {
						t.Errorf("that took %v", took)
					}
					began = time.Now()
					if _, err := h.SetContents(ctx, []byte("x")); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took > 100*time.Millisecond {
						t.Errorf("after a hand-over to a replica that was %s, a write took %v", trouble.name, took)
					}
				}
				c.Isolate(from)
				time.Sleep(5 * time.Second)
				next := c.Master()
				c.Rejoin(from)
				time.Sleep(5 * time.Second)
				if err := c.Replica(next).Transfer(ctx, from); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if _, err := h.SetContents(ctx, []byte("y")); err != nil || c.Master() != from {
					t.Errorf("handed back: %v, the master is %s", err, c.Master())
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("the first write after handing back took %v", took)
				}
			})
		})
	}
}

// While writes go on, each of several hand-overs succeeds, and no write is
// refused finally.
func TestTransfersUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		c := celltest.Start(t, 5)
		stop, failed := make(chan struct{}), make(chan error, 4)
		for range 4 {
			h := open(t, ctx, dial(t, ctx, c, "writer", client.Config{}), "/ls/local/f", 0)
			go func() {
				for {
					select {
					case <-stop:
						failed <- nil
						return
					case <-time.After(time.Millisecond):
					}
					if _, err := h.SetContents(ctx, []byte("x")); err != nil {
						failed <- err
						return
					}
				}
			}()
		}
		for range 20 {
			from := c.Master()
			if err := c.Replica(from).Transfer(ctx, ""); err != nil {
				t.Errorf("hand-over from %s: %v", from, err)
			}
			for c.Master() == from {
				time.Sleep(time.Millisecond)
			}
		}
		close(stop)
		for range 4 {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
	})
}
