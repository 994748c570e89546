package cell_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// full makes long tests as long as the documentation promises; make endurance
// sets it.
var full = flag.Bool("full", false, "make long tests as long as the promises say")

// Very many ephemeral nodes end together, and every replica starts again on the
// resulting log. With -full there are 500,000 nodes of 50 sessions.
func TestReplicasRestartAfterManyNodesDied(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		sessions, each := 4, 500
		if *full {
			sessions, each = 50, 10_000
		}
		var owners []*client.Client
		for i := range sessions {
			owners = append(owners, dial(t, ctx, c, fmt.Sprintf("owner%d", i), client.Config{}))
		}
		watcher := dial(t, ctx, c, "watcher", client.Config{})
		d, err := watcher.Open(ctx, "/ls/local/d", client.OpenOptions{Read: true, Create: client.Directory})
		if err != nil {
			t.Fatal(err)
		}
		// One more than the default quota of all principals: the directory
		// counts, too.
		if err := watcher.SetPrincipalQuota(ctx, "anonymous", api.Quota{Nodes: sessions*each + 1}); err != nil {
			t.Fatal(err)
		}
		var creating sync.WaitGroup
		for i, owner := range owners {
			creating.Go(func() {
				for k := range each {
					path := fmt.Sprintf("/ls/local/d/%s-%d-%d", strings.Repeat("x", 140), i, k)
					if _, err := owner.Open(ctx, path, client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		creating.Wait()
		for i := range owners {
			c.Cut(fmt.Sprintf("owner%d", i)) // they all expire together
		}
		for left := 1; left > 0 && ctx.Err() == nil; {
			stat, err := d.Stat(ctx)
			if err != nil {
				t.Fatal(err)
			}
			left = stat.Children
			<-time.After(100 * time.Millisecond)
		}
		for _, id := range []string{"r1", "r2", "r3"} {
			c.Kill(id)
		}
		for _, id := range []string{"r1", "r2", "r3"} {
			c.Restart(id)
		}
		c.Master()
		if stat, err := d.Stat(ctx); err != nil || stat.Children != 0 {
			t.Errorf("after all replicas were started again: %d nodes, %v", stat.Children, err)
		}
		h := open(t, ctx, watcher, "/ls/local/lock", 0)
		if _, err := h.TryAcquire(ctx, api.Exclusive); err != nil {
			t.Error(err)
		}
	})
}
