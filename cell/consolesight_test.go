package cell_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Who may not see everything is not told that there is nothing.
func TestConsoleSaysWhatItCannotSee(t *testing.T) {
	inSecureConsoleCell(t, func(t *testing.T, ctx context.Context, c *consoleCell) {
		ops := dial(t, ctx, c.Cell, "ops", client.Config{TLS: c.clients.client("ops")})
		put(t, ctx, ops, "/ls/local/acl/only-ops", []byte("ops\n"), api.ACL{})
		h, err := ops.Open(ctx, "/ls/local/hidden", client.OpenOptions{Read: true, Write: true, Create: client.File, ACL: api.ACL{Read: "only-ops", Write: "only-ops", Change: "only-ops"}})
		if err != nil {
			t.Fatal(err)
		}
		acquire(t, ctx, h)
		bob, operator := c.login(t, "r1", "bob"), c.login(t, "r1", "ops")
		for page, says := range map[string]string{
			"/console/locks": "as far as you may see", "/console/": "No change that you may see waits", "/console/waits": "of those that you may see",
			"/console/takeovers": "only operators see", "/console/misuse": "as far as you may see",
		} {
			if body := bob.page(page); !strings.Contains(body, says) {
				t.Errorf("%s does not tell bob that there may be more:\n%s", page, body)
			}
		}
		if body := operator.page("/console/"); strings.Contains(body, "that you may see") {
			t.Errorf("an operator is told that there may be more:\n%s", body)
		}
	})
}

// A session that a change waits for, among more than are listed, is not said to hold none up.
func TestConsoleSessionThatIsNotListed(t *testing.T) {
	inConsoleCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		const n = 30 // of which ten are listed, each time others
		writer := dial(t, ctx, c, "writer", client.Config{NoCache: true})
		h := open(t, ctx, writer, "/ls/local/file", 0)
		var sessions []api.SessionID
		for i := range n {
			one := dial(t, ctx, c, fmt.Sprint("reader", i), client.Config{})
			cached := open(t, ctx, one, "/ls/local/file", 0)
			for range 2 { // the first fills the cache, the second asks for the lease to use it
				if _, _, err := cached.Contents(ctx); err != nil {
					t.Fatal(err)
				}
			}
			sessions = append(sessions, one.Session())
			c.Cut(fmt.Sprint("reader", i))
		}
		b := cs.open(t, c.Master(), nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = h.SetContents(ctx, []byte("x"))
		}()
		time.Sleep(time.Second)
		unlisted := 0
		for _, id := range sessions {
			body := b.page("/console/sessions/" + id.String())
			switch {
			case strings.Contains(body, "a change of"):
			case strings.Contains(body, "of those that have waited longest; there are more"):
				unlisted++
			default:
				t.Errorf("session %v, for which the change waits:\n%s", id, body)
			}
		}
		if unlisted == 0 {
			t.Error("all sessions were listed each time")
		}
		<-done
		for i := range n {
			c.Heal(fmt.Sprint("reader", i))
		}
	})
}
