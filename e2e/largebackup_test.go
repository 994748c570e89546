package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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

// maxBackupPause is for how long a backup may keep the master from serving.
const maxBackupPause = 20 * time.Millisecond

// A backup of much state (1 GB with -full) does not stop the master: its mutex is never held for long, its
// collector never stops it for long, an honest client's calls are served all the time, and no session ends.
func TestLargeBackup(t *testing.T) {
	besideOthers(t)
	size := 4 << 20
	if *full {
		size = 1000 << 20 // a principal may have 1 GiB
	}
	w := newWorld(t)
	w.env = steadyMaster()
	w.run()
	fill(t, w, size)
	h := newHonest(t, w, client.TLSFiles{})
	master := w.masterByMetrics(t)
	quiet := 2 * time.Second
	if *full {
		quiet = 20 * time.Second
		for _, r := range w.replicas() {
			if r.PID != master.PID {
				yieldProcessors(t, r.PID)
			}
		}
	}
	before, stopped := h.during(quiet), stopsOf(t, master)
	h.begin()
	began := time.Now()
	file := filepath.Join(t.TempDir(), "backup")
	taking := launch(t, command(bin("chubbyctl"), "--servers", w.servers(), "cell", "backup", file), startNicely)
	if code := taking.wait(10 * time.Minute); code != 0 {
		t.Fatalf("exit code %d: %s", code, &taking.stderr)
	}
	took, during, after := time.Since(began), h.end(), stopsOf(t, master)
	h.check(t)
	if now := w.masterByMetrics(t); now.PID != master.PID && alone() {
		t.Errorf("%s is the master, and %s was", now.ID, master.ID)
	}
	var shown struct {
		Contents int `json:"contents_bytes"`
	}
	noErr(t, json.Unmarshal([]byte(w.must("cell", "backup", "verify", file, "-o", "json")), &shown))
	failIf(t, shown.Contents < size, "the backup has %d bytes of contents, and the cell %d", shown.Contents, size)
	about := must(os.Stat(file))(t)
	t.Logf("%d MiB of contents in a file of %d MiB in %v; before: %v; during: %v; the longest read %v, before %v; the mutex: %d holds, of them %d above %v",
		shown.Contents>>20, about.Size()>>20, took.Round(time.Second/10), before, during, during.reads.p(100), before.reads.p(100),
		after.holds-stopped.holds, after.long-stopped.long, maxBackupPause)
	if *full && after.long > stopped.long { // without it other tests run beside, and have processors wait
		t.Errorf("the master's mutex was held for more than %v, %d times", maxBackupPause, after.long-stopped.long)
	}
}

// yieldProcessors has a process take what processor time is left, as if it ran on a machine of its own: the five replicas hash all
// that they have at the beginning of a backup, and two processors would be busy with that of others.
func yieldProcessors(t *testing.T, pid int) {
	t.Helper()
	threads := must(os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)))(t)
	for _, thread := range threads {
		id := must(strconv.Atoi(thread.Name()))(t)
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, id, 19); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
}

// stops are what a master says of what kept all calls waiting.
type stops struct{ holds, long int64 }

func stopsOf(t *testing.T, master replica) stops {
	t.Helper()
	const name = "chubby_master_mutex_hold_seconds"
	at := metrics(t, master, name+"_count", fmt.Sprintf("%s_bucket{le=%q}", name, fmt.Sprint(maxBackupPause.Seconds())))
	return stops{holds: at[0], long: at[0] - at[1]}
}

// fill writes files of the largest size, so many bytes of them.
func fill(t *testing.T, w *world, size int) {
	t.Helper()
	const writers, perDirectory = 4, 512
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	files := size / api.MaxContents
	for i := 0; i*perDirectory < files; i++ {
		w.must("mkdir", w.path(fmt.Sprint("full-", i)))
	}
	contents := make([]byte, api.MaxContents)
	var next atomic.Int64
	var working sync.WaitGroup
	for range writers {
		c := w.client(client.Config{NoCache: true})
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < files; i = int(next.Add(1)) - 1 {
				name := w.path(fmt.Sprintf("full-%d/%d", i/perDirectory, i))
				one, err := c.Open(ctx, name, client.OpenOptions{Write: true, Create: client.File, Contents: contents})
				if err != nil {
					t.Error(err)
					return
				}
				report(t, one.Close(ctx))
			}
		})
	}
	working.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

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
		failIf(t, n > limit, "%s had %d bytes, and its limit is %d", id, n, limit)
	}
	report(t, c.Delete(ctx, w.path("f-0-0")), "delete")
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
		noErr(t, syscall.Kill(was.PID, syscall.SIGKILL))
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
	text := must(os.ReadFile("../deploy/helm/chubby/values.yaml"))(t)
	m := regexp.MustCompile(`(?m)^  limits:\n    memory: (\d+)Gi$`).FindSubmatch(text)
	stopIf(t, m == nil, "the chart has no limit of memory in Gi")
	n := must(strconv.ParseInt(string(m[1]), 10, 64))(t)
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
