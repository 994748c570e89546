package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// Very many idle sessions over few connections cost the master little memory and little time, and
// all of them survive a fail-over (Chubby §3.1).
func TestManySessions(t *testing.T) {
	besideOthers(t)
	number, connections, settle, idle := 500, 10, 200*time.Millisecond, time.Second
	if *full {
		number, connections, settle, idle = 10_000, 100, 10*time.Second, time.Minute
	}
	w := newWorld(t)
	w.env = []string{"GOGC=100"} // by which liveMemory reckons; and so there is no ballast
	w.run()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	replica := w.replicas()[w.status().Master]
	master := replica.PID
	cells := make([]*client.Cell, connections)
	for i := range cells {
		cell := must(client.Dial(ctx, client.Config{Servers: strings.Split(w.servers(), ",")}))(t)
		t.Cleanup(func() { _ = cell.Close() })
		cells[i] = cell
	}
	time.Sleep(settle / 5) // the connections are there, and the master has settled
	resident, live, goroutines := rss(t, master), liveMemory(t, replica), metric(t, replica, "go_goroutines")
	without := load(t, master, idle/4)
	sessions := openMany(t, ctx, cells, number)
	time.Sleep(settle) // every session has a KeepAlive parked
	resident, live = (rss(t, master)-resident)/int64(number), (liveMemory(t, replica)-live)/int64(number)
	share := load(t, master, idle) - without
	if more := metric(t, replica, "go_goroutines") - goroutines; more > int64(number/2) {
		t.Errorf("the master has %d goroutines more for %d sessions that wait", more, number)
	}
	t.Logf("%d sessions over %d connections, each: %d bytes of the master's memory (%d resident, until the garbage is collected); all: %.3f of a core at leases of %v, besides the %.3f that it takes without sessions",
		number, connections, live, resident, share, sessions[0].Lease(), without)
	failIf(t, *full && (live > 4<<10 || share > 0.125), "the budget is 4 KB and 0.125 of a core")

	killed := time.Now()
	w.kill9(master)
	epoch := sessions[0].Epoch()
	for _, c := range sessions {
		for (c.Epoch() == epoch || c.State() != session.Safe) && c.Err() == nil && time.Since(killed) < patience(time.Minute) {
			time.Sleep(time.Millisecond)
		}
	}
	took := time.Since(killed)
	lost := 0
	for _, c := range sessions {
		if c.Err() != nil {
			lost++
		}
	}
	t.Logf("the master was killed: all sessions have heard of the next, and are safe, after %v; %d were lost", took.Round(time.Millisecond), lost)
	if lost > 0 || took > patience(10*time.Second) {
		t.Errorf("%d of %d sessions were lost; it took %v", lost, number, took)
	}
}

// openMany opens that many sessions, a few at a time.
func openMany(t *testing.T, ctx context.Context, cells []*client.Cell, number int) []*client.Client {
	t.Helper()
	sessions := make([]*client.Client, number)
	var opening sync.WaitGroup
	for i, cell := range cells {
		opening.Go(func() {
			for at := i; at < number; at += len(cells) {
				c, err := cell.NewSession(ctx, client.SessionConfig{})
				if err != nil {
					t.Error(err)
					return
				}
				sessions[at] = c
			}
		})
	}
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { // the cell ends with the test; close frees what the sessions hold in this process
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		var closing sync.WaitGroup
		for _, c := range sessions {
			closing.Go(func() { _ = c.Close(ctx) })
		}
		closing.Wait()
	})
	return sessions
}

// liveMemory returns the memory of a replica that is in use: its stacks, and the
// part of its heap that is not garbage, as the collector has last found.
func liveMemory(t *testing.T, r replica) int64 {
	t.Helper()
	// The collector begins anew when what it has left, and the stacks, have doubled.
	stacks := metric(t, r, "go_memstats_stack_inuse_bytes")
	return stacks + (metric(t, r, "go_memstats_next_gc_bytes")-stacks)/2
}

// metric returns the value of a replica's metric that has no labels.
func metric(t *testing.T, r replica, name string) int64 {
	t.Helper()
	return metrics(t, r, name)[0]
}

// metrics returns values of one page of a replica's metrics, and so of one moment.
func metrics(t *testing.T, r replica, names ...string) []int64 {
	t.Helper()
	resp, err := http.Get("http://" + r.HTTP + "/metrics")
	stopIf(t, err != nil, "the metrics of %s: %v", r.HTTP, err)
	defer resp.Body.Close()
	text := must(io.ReadAll(resp.Body))(t)
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if at := strings.LastIndexByte(line, ' '); at > 0 {
			all[line[:at]] = strings.TrimSpace(line[at:])
		}
	}
	values := make([]int64, len(names))
	for i, name := range names {
		v, err := strconv.ParseFloat(all[name], 64)
		stopIf(t, err != nil, "the metric %s: %v", name, err)
		values[i] = int64(v)
	}
	return values
}

// rss returns the resident memory of a process, in bytes.
func rss(t *testing.T, pid int) int64 {
	t.Helper()
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n := must(strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64))(t)
			return n << 10
		}
	}
	t.Fatalf("process %d does not say how much memory it has", pid)
	return 0
}

// load returns the part of a core that a process uses, over that time.
func load(t *testing.T, pid int, span time.Duration) float64 {
	t.Helper()
	before := cpu(t, pid)
	time.Sleep(span)
	return (cpu(t, pid) - before).Seconds() / span.Seconds()
}

// cpu returns the processor time that a process has used.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t)
	_, after, _ := strings.Cut(string(text), ") ") // its name may hold anything
	fields := strings.Fields(after)
	const user, system, tick = 11, 12, 10 * time.Millisecond // of proc(5), counted from the state; a tick is 1/100 s on Linux
	var sum time.Duration
	for _, at := range []int{user, system} {
		n := must(strconv.ParseInt(fields[at], 10, 64))(t)
		sum += time.Duration(n) * tick
	}
	return sum
}

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
	noErr(t, err)
	var need struct {
		Memory int64 `json:"memory_bytes"`
	}
	if err := json.Unmarshal(out, &need); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return need.Memory
}
