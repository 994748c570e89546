package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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
	w := start(t)
	fill(t, w, size)
	h := newHonest(t, w, client.TLSFiles{})
	master := w.masterByMetrics(t)
	quiet := 2 * time.Second
	if *full {
		quiet = 20 * time.Second
	}
	before, stopped := h.during(quiet), stopsOf(t, master)
	h.begin()
	began := time.Now()
	file := filepath.Join(t.TempDir(), "backup")
	w.must("cell", "backup", file)
	took, during, after := time.Since(began), h.end(), stopsOf(t, master)
	h.check(t)
	if now := w.masterByMetrics(t); now.PID != master.PID {
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

// stops are what a master says of what kept all calls waiting.
type stops struct{ holds, long int64 }

func stopsOf(t *testing.T, master replica) stops {
	t.Helper()
	const name = "chubby_master_mutex_hold_seconds"
	all := metric(t, master, name+"_count")
	return stops{holds: all, long: all - metric(t, master, fmt.Sprintf("%s_bucket{le=%q}", name, fmt.Sprint(maxBackupPause.Seconds())))}
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
