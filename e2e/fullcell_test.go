package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A client that writes without end is refused before the replicas have no memory left: with a quarter of the memory that the Helm chart gives
// them, they hold what they take within it, the client's quota is not reached, and what makes room is done. The limit is that of
// Go's runtime, nine tenths of what a control group would have, so that nothing but this test ends if it does not hold.
func TestFullCellKeepsWithinMemory(t *testing.T) {
	besideOthers(t)
	const part = 4
	limit := chartMemory(t) / part
	w := newWorld(t)
	w.env = append(steadyMaster(), fmt.Sprintf("GOMEMLIMIT=%d", limit*9/10))
	w.run("--replicas", "3")
	c := w.client(client.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), patience(5*time.Minute))
	defer cancel()
	most := make(map[string]int64)
	look := func() {
		for id, r := range w.replicas() {
			if n := anonymous(r.PID); n > most[id] {
				most[id] = n
			}
		}
	}
	var written atomic.Int64
	contents := make([]byte, 255<<10)
	var writers sync.WaitGroup
	full := make(chan error, 8)
	for i := range cap(full) {
		writers.Go(func() {
			for n := 0; written.Load() < limit; n++ {
				h, err := c.Open(ctx, w.path(fmt.Sprintf("f-%d-%d", i, n)), client.OpenOptions{Write: true, Create: client.File, Contents: contents})
				if err == nil {
					written.Add(int64(len(contents)))
					err = h.Close(ctx)
				}
				if err != nil {
					full <- err
					return
				}
			}
			full <- nil
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		case <-time.After(50 * time.Millisecond):
		}
		look()
	}
	for range cap(full) {
		if err := <-full; !errors.Is(err, api.QuotaExceeded) || !strings.Contains(err.Error(), "max-contents-mib") {
			t.Errorf("with %d MiB written: %v; want it refused because the cell is full", written.Load()>>20, err)
		}
	}
	if n := written.Load(); n < limit/5 {
		t.Errorf("the cell was full with %d MiB, of a limit of %d", n>>20, limit>>20)
	}
	for id, n := range most {
		t.Logf("%s: at most %d MiB with %d MiB of contents, of a limit of %d", id, n>>20, written.Load()>>20, limit>>20)
		if n > limit {
			t.Errorf("%s had %d bytes, and its limit is %d", id, n, limit)
		}
	}
	if err := c.Delete(ctx, w.path("f-0-0")); err != nil {
		t.Errorf("delete: %v", err)
	}
	w.returnsWithin(ctx, t, limit)
}

// returnsWithin kills a replica, and wants it back with all contents and within its memory.
func (w *world) returnsWithin(ctx context.Context, t *testing.T, limit int64) {
	t.Helper()
	master := w.masterByMetrics(t)
	for id, was := range w.replicas() {
		if id == master.ID {
			continue
		}
		want := metric(t, master, "chubby_contents_bytes")
		if err := syscall.Kill(was.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			now := w.replicas()[id]
			if now.PID == was.PID {
				continue
			}
			if n := anonymous(now.PID); n > limit {
				t.Errorf("%s has %d bytes when it comes back, and its limit is %d", id, n, limit)
			}
			if resp, err := http.Get("http://" + now.HTTP + "/readyz"); err == nil {
				_ = resp.Body.Close()
				if metric(t, now, "chubby_contents_bytes") == want {
					return
				}
			}
		}
		t.Fatalf("%s is not back: %v", id, context.Cause(ctx))
	}
}

// chartMemory returns the limit of memory that the Helm chart gives a replica.
func chartMemory(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("../deploy/helm/chubby/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^  limits:\n    memory: (\d+)Gi$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the chart has no limit of memory in Gi")
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 30
}

// anonymous returns the memory of a process that the system cannot take back, in bytes; 0 if it has ended.
func anonymous(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}
