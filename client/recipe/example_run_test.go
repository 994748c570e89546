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

// The examples of elections, presence and names do on a real cell what they say.
func TestElectionExamplesRun(t *testing.T) {
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
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, want := range []string{"no primary", "primary: web1:80", "web1 is busy", "web1:80 2", "0 web1 0 true", "1 web2 0 false", "primary: web2:80"} {
		if !slices.Contains(lines, want) {
			t.Errorf("the examples did not write %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "(") {
		t.Errorf("an example failed:\n%s", text)
	}
}
