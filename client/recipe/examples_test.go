//go:build linux

package recipe_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// The examples of this file's neighbour do on a real cell what they say.
func TestExamplesRun(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stdout, config := os.Stdout, cellOf
	defer func() { os.Stdout, cellOf = stdout, config }()
	os.Stdout = out
	synctest.Test(t, func(t *testing.T) {
		foo := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.Cell = "foo" })
		cellOf = func() client.Config {
			return client.Config{Cell: "foo", Servers: foo.Servers(), Dialer: foo.Dial, Clock: celltest.Clock}
		}
		ctx, c, done := connect()
		for _, dir := range []string{"films", "schema", "accounts", "web"} {
			h, err := c.Open(ctx, "/ls/foo/"+dir, client.OpenOptions{Read: true, Create: client.Directory})
			if err != nil {
				t.Fatal(err)
			}
			_ = h.Close(ctx)
		}
		done()
		ExampleSemaphore()
		ExampleBarrier()
		var all sync.WaitGroup
		for range 8 {
			all.Go(ExampleDoubleBarrier)
		}
		all.Wait()
		ExampleQueue()
		ExampleRWLock()
		ExampleAcquireAll()
		ExampleWatchConfig()
	})
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	// The queue is waited for until the time is over; of the limits there is the default.
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "take an item /ls/foo/mails") || lines[1] != "100 true" {
		t.Errorf("the examples wrote\n%s", text)
	}
}
