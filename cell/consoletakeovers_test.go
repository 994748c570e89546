package cell_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// After a fail-over every console shows its phases, in text; of one with a client that does not return, that this goes on.
func TestConsoleTakeovers(t *testing.T) {
	inConsoleCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		near, far := dial(t, ctx, c, "near", client.Config{}), dial(t, ctx, c, "far", client.Config{})
		open(t, ctx, near, "/ls/local/file", 0)
		open(t, ctx, far, "/ls/local/file", 0)
		c.Cut("far")
		c.FailOver()
		acquire(t, ctx, open(t, ctx, near, "/ls/local/lock", 0))
		time.Sleep(5 * time.Second)
		look := func(id string) (body string, phases []string) {
			a := cs.open(t, id, nil).get("/console/takeovers")
			noScript(t, "/console/takeovers", a)
			newest, _, _ := strings.Cut(a.body, "</section>")
			for _, m := range regexp.MustCompile(`<tr><th scope="row">([^<]*) <span`).FindAllStringSubmatch(newest, -1) {
				phases = append(phases, m[1])
			}
			return newest, phases
		}
		for _, id := range []string{"r1", "r2", "r3"} {
			if c.Replica(id) == nil {
				continue
			}
			body, phases := look(id)
			if got, want := strings.Join(phases, ", "), "Election, Log and proof, Leases, First lease, Caches, First grant, Sessions back"; got != want {
				t.Errorf("%s shows %s; want %s\n%s", id, got, want, body)
			}
			for _, want := range []string{"2 sessions outlived", "No master served for", "so far</span>"} {
				if !strings.Contains(body, want) {
					t.Errorf("%s does not say %q:\n%s", id, want, body)
				}
			}
		}
		time.Sleep(time.Minute) // the session of the client that cannot be reached has ended
		if body, phases := look(c.Master()); strings.Contains(body, "so far") || len(phases) != 7 {
			t.Errorf("at the end there are %v:\n%s", phases, body)
		}
		c.Heal("far")
	})
}
