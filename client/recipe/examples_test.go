//go:build linux

package recipe_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// written runs examples on a real cell named foo, and returns the lines that they
// wrote.
func written(t *testing.T, examples func(t *testing.T)) []string {
	t.Helper()
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
		examples(t)
	})
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// The examples of elections, presence and names do on a real cell what they say.
func TestElectionExamplesRun(t *testing.T) {
	lines := written(t, func(*testing.T) {
		var all sync.WaitGroup
		for _, example := range []func(){ExampleObserve, ExampleWatchMembers, ExampleCampaign, ExampleAnnounce, ExamplePublish} {
			all.Go(example)
			time.Sleep(time.Second)
		}
		ctx, c, done := connect()
		all.Go(func() {
			_, _ = recipe.Campaign(ctx, c, "/ls/foo/primary", recipe.CampaignOptions{Name: "web2", Value: []byte("web2:80")})
		})
		time.Sleep(time.Second)
		ExampleNominate()
		all.Wait()
		done()
	})
	for _, want := range []string{"no primary", "primary: web1:80", "web1 is busy", "web1:80 2", "0 web1 0 true", "1 web2 0 false", "primary: web2:80"} {
		if !slices.Contains(lines, want) {
			t.Errorf("the examples did not write %q:\n%s", want, strings.Join(lines, "\n"))
		}
	}
	if text := strings.Join(lines, "\n"); strings.Contains(text, "(") {
		t.Errorf("an example failed:\n%s", text)
	}
}

// So do those of the others.
func TestExamplesRun(t *testing.T) {
	lines := written(t, func(t *testing.T) {
		ctx, c, done := connect()
		for _, dir := range []string{"films", "accounts", "web"} {
			h, err := c.Open(ctx, "/ls/foo/"+dir, client.OpenOptions{Read: true, Create: client.Directory})
			if err != nil {
				t.Fatal(err)
			}
			_ = h.Close(ctx)
		}
		done()
		ExampleSemaphore()
		var all sync.WaitGroup
		for range 8 {
			all.Go(ExampleDoubleBarrier)
		}
		all.Wait()
		ExampleRWLock()
		ExampleAcquireAll()
		ExampleWatchConfig()
	})
	if len(lines) != 1 || lines[0] != "100 true" { // of the limits there is the default
		t.Errorf("the examples wrote\n%s", strings.Join(lines, "\n"))
	}
}
