package cell_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Each kind of quota shows the share of that principal which uses most of its own, however little others use, and nobody's name.
func TestQuotasAreMeasured(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		shares := func() map[string]float64 {
			found := map[string]float64{}
			for name, value := range cell.Gauges(c.Replica(c.Master())) {
				if kind, ok := strings.CutPrefix(name, "chubby_quota_used_ratio "); ok {
					found[kind] = value
				}
			}
			return found
		}
		root := dial(t, ctx, c, "root", client.Config{As: "root"})
		much, little := dial(t, ctx, c, "much", client.Config{As: "much"}), dial(t, ctx, c, "little", client.Config{As: "little"})
		for _, principal := range []string{"much", "little"} {
			if err := root.SetPrincipalQuota(ctx, principal, api.Quota{Nodes: 10, Bytes: 100, Sessions: 2, Handles: 8, Waiters: 4}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 5 {
			h := open(t, ctx, much, fmt.Sprintf("/ls/local/much-%d", i), 0)
			if _, err := h.SetContents(ctx, make([]byte, 15)); err != nil {
				t.Fatal(err)
			}
			if i < 1 {
				open(t, ctx, little, "/ls/local/little", 0)
			}
		}
		held := acquire(t, ctx, open(t, ctx, much, "/ls/local/much-0", 0))
		waiting, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		waits := open(t, ctx, little, "/ls/local/much-0", 0)
		go func() {
			defer close(ended)
			_, _ = waits.Acquire(waiting, api.Exclusive)
		}()
		time.Sleep(11 * time.Second)
		for kind, want := range map[string]float64{"nodes": 0.5, "bytes": 0.75, "sessions": 0.5, "handles": 0.75, "waiters": 0.25} {
			if got := shares()[kind]; got != want {
				t.Errorf("%s is %v, want %v", kind, got, want)
			}
		}
		if len(shares()) != 5 {
			t.Errorf("%v: want five kinds", shares())
		}
		cancel()
		<-ended
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if err := root.SetPrincipalQuota(ctx, "much", api.Quota{Nodes: 4}); err != nil { // fewer than it has
			t.Fatal(err)
		}
		if now := shares()["nodes"]; now != 0.5 {
			t.Errorf("nodes is %v at once: all principals were looked at again for every page", now)
		}
		time.Sleep(11 * time.Second)
		if now := shares(); now["nodes"] != 1.25 || now["waiters"] != 0 {
			t.Errorf("%v; want 1.25 of the nodes, and nobody who waits", now)
		}
		for i := range c.Servers() {
			id := fmt.Sprintf("r%d", i+1)
			if share, shown := cell.Gauges(c.Replica(id))["chubby_quota_used_ratio nodes"]; !shown || id != c.Master() && share != 0 {
				t.Errorf("%s shows %v, %v; the master is %s", id, share, shown, c.Master())
			}
		}
	})
}
