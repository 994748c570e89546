package cell_test

import (
	"context"
	"html"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/misuse"
)

// Who misuses the cell is named on a page, with the rules that it breaks, each once, and what it should do instead; names are text in it.
func TestConsoleMisuse(t *testing.T) {
	inConsoleCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		b := cs.open(t, "r2", nil)
		if body := b.page("/console/misuse"); !strings.Contains(body, "No client misuses the cell.") {
			t.Errorf("of a cell that nobody uses, the page says:\n%s", body)
		}
		const path = "/ls/local/<b>'name&amp;"
		one := dial(t, ctx, c, "one", client.Config{As: "<i>alice</i>", NoCache: true, Lease: 2 * time.Second})
		put(t, ctx, one, path, []byte(hostile), api.ACL{})
		two := dial(t, ctx, c, "two", client.Config{As: "<i>bob</i>", NoCache: true})
		poll(t, ctx, open(t, ctx, two, path, 0))
		a := b.get("/console/misuse")
		noScript(t, "/console/misuse", a)
		for want, times := range map[string]int{
			"<h2>polling</h2>": 1, "<h2>short-lease</h2>": 1, "a lease of 2.0 s": 1, ">" + html.EscapeString(path) + "</a>": 1, ">" + one.Session().String() + "</a>": 1, ">" + two.Session().String() + "</a>": 1,
			"&lt;i&gt;alice&lt;/i&gt;": 1, "&lt;i&gt;bob&lt;/i&gt;": 1, html.EscapeString(misuse.Polling.Instead()): 1, html.EscapeString(misuse.ShortLease.Why()): 1,
		} {
			if got := strings.Count(a.body, want); got != times {
				t.Errorf("%q is there %d times, want %d", want, got, times)
			}
		}
		if t.Failed() {
			t.Log(a.body)
		}
	})
}
