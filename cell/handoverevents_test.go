package cell_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A client that watches and does nothing else has an event of each change that begins after
// the last of some hand-overs in quick succession, or a marker after it.
func TestEventsAfterHandOvers(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				r := rand.New(rand.NewPCG(seed, 7))
				for _, host := range []string{"watcher", "author"} {
					c.Slow(host, time.Duration(r.IntN(100))*time.Millisecond)
				}
				watcher := dial(t, ctx, c, "watcher", client.Config{NoCache: true})
				dir, err := watcher.Open(ctx, "/ls/local/d", client.OpenOptions{Read: true, Create: client.Directory, Events: []api.EventKind{api.EventChildAdded}})
				if err != nil {
					t.Fatal(err)
				}
				author := dial(t, ctx, c, "author", client.Config{})
				events := make(chan api.Event, 10000)
				go func() {
					for {
						e, err := dir.Next(ctx)
						if err != nil {
							return
						}
						events <- e
					}
				}()
				for i := range 20 {
					for range 1 + r.IntN(5) {
						time.Sleep(time.Duration(r.IntN([]int{20, 100, 300, 1000}[r.IntN(4)])) * time.Millisecond)
						c.Transfer()
					}
					time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
					for len(events) > 0 {
						<-events
					}
					name := fmt.Sprintf("f%d", i)
					began := time.Now()
					h, err := author.Open(ctx, "/ls/local/d/"+name, client.OpenOptions{Write: true, Create: client.NewFile})
					if err != nil {
						t.Fatal(err)
					}
					_ = h.Close(ctx)
					for waiting := true; waiting; {
						select {
						case e := <-events:
							waiting = e.Child != name && e.Kind != api.EventMasterFailedOver && e.Kind != api.EventLost
						case <-time.After(30 * time.Second):
							t.Fatalf("no event of %s, which was created at %v", name, began)
						}
					}
				}
			})
		})
	}
}
