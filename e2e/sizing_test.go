package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

// What chubbyctl sizing says that programs need is what programs with TLS connections of their own need of a real replica. The replica collects
// its garbage often, so that what it has in use is little more than what is alive; sizing reckons with twice that. The bounds are wide:
// a figure without connections is less than a tenth of what is alive.
func TestSizingKnowsOfConnections(t *testing.T) {
	besideOthers(t)
	const programs = 200
	w := newWorld(t)
	w.env = append(steadyMaster(), "GOGC=10")
	w.run("--tls", "--replicas", "1")
	master := w.masterByMetrics(t)
	inUse := func() int64 {
		at := metrics(t, master, "go_memstats_heap_alloc_bytes", "go_memstats_stack_inuse_bytes")
		return at[0] + at[1]
	}
	before := inUse()
	in := func(name string) string { return filepath.Join(w.dir, "tls", name) }
	cfg := client.Config{Servers: []string{master.Client}, TLS: client.TLSFiles{CA: in("ca.crt"), Cert: in("client-dev.crt"), Key: in("client-dev.key")}}
	ctx, cancel := context.WithTimeout(t.Context(), patience(2*time.Minute))
	defer cancel()
	var all sync.WaitGroup
	opening := make(chan struct{}, 10)
	for range programs {
		all.Go(func() {
			opening <- struct{}{}
			defer func() { <-opening }()
			c, err := client.New(ctx, cfg)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience(10*time.Second))
				defer cancel()
				_ = c.Close(ctx)
			})
		})
	}
	all.Wait()
	if n := metric(t, master, "chubby_client_connections"); n < 2*programs {
		t.Fatalf("the replica has %d connections of %d programs", n, programs)
	}
	alive := inUse() - before
	reckoned := w.sized(t, programs) - w.sized(t, 0)
	t.Logf("%d programs have %d KiB in use at the replica; sizing reckons with %d KiB", programs, alive>>10, reckoned>>10)
	if reckoned < alive || reckoned > 10*alive {
		t.Errorf("chubbyctl sizing reckons with %d bytes for %d programs, of which %d are in use at a replica; want twice as many", reckoned, programs, alive)
	}
}

// sized returns the memory that chubbyctl sizing says a replica needs for so many programs of one session each, which do nothing.
func (w *world) sized(t *testing.T, programs int) int64 {
	t.Helper()
	out, err := command(bin("chubbyctl"), "sizing", "-o", "json", "--sessions", fmt.Sprint(programs), "--handles", "0").Output()
	if err != nil {
		t.Fatal(err)
	}
	var need struct {
		Memory int64 `json:"memory_bytes"`
	}
	if err := json.Unmarshal(out, &need); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return need.Memory
}
