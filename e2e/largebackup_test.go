package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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
	if err := json.Unmarshal([]byte(w.must("cell", "backup", "verify", file, "-o", "json")), &shown); err != nil {
		t.Fatal(err)
	}
	if shown.Contents < size {
		t.Errorf("the backup has %d bytes of contents, and the cell %d", shown.Contents, size)
	}
	about, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
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
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
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
				if err := one.Close(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
