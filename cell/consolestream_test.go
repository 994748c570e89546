package cell_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// listen opens a stream of events, which ends with ctx, and that before the cell. The answer is its header alone.
func (b *browser) listen(ctx context.Context, path string, edits ...func(*http.Request)) (answer, *bufio.Reader) {
	b.t.Helper()
	q := must(http.NewRequestWithContext(ctx, http.MethodGet, b.base+path, nil))(b.t)
	for _, edit := range edits {
		edit(q)
	}
	reply := must(b.client.Do(q))(b.t)
	b.t.Cleanup(func() { _ = reply.Body.Close() })
	return answer{code: reply.StatusCode, header: reply.Header}, bufio.NewReader(reply.Body)
}

// told reads a stream up to a line that has a text in it, and returns all of it.
func told(t *testing.T, from *bufio.Reader, until string) string {
	t.Helper()
	var all strings.Builder
	for {
		line, err := from.ReadString('\n')
		all.WriteString(line)
		if err != nil || strings.Contains(line, until) {
			return all.String()
		}
	}
}

// A browser whose stream was interrupted is told so among the events, with since when: what has happened meanwhile it has not got.
func TestConsoleStreamSaysWhatItMissed(t *testing.T) {
	inConsoleCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		listening, end := context.WithCancel(ctx)
		defer end()
		one := dial(t, ctx, c, "one", client.Config{NoCache: true})
		put(t, ctx, one, "/ls/local/file", nil, api.ACL{})
		const stream = "/console/events/stream?path=/ls/local/file"
		b := cs.open(t, "r1", nil)
		_, from := b.listen(listening, stream)
		first := told(t, from, "following")
		_, id, _ := strings.Cut(first, "id: ")
		id, _, _ = strings.Cut(id, "\n")
		if _, err := time.Parse(time.RFC3339, id); err != nil {
			t.Fatalf("the first event has no time to come back with: %s", first)
		}
		failIf(t, strings.Contains(first, "interrupted"), "the first stream speaks of an interruption: %s", first)
		_, from = b.listen(listening, stream, func(q *http.Request) { q.Header.Set("Last-Event-ID", id) })
		if again := told(t, from, "interrupted"); !strings.Contains(again, "event: begin") || !strings.Contains(again, "What has happened since "+id+" is not shown") {
			t.Errorf("the stream goes on as if nothing had been missed: %s", again)
		}
		_, from = b.listen(listening, stream, func(q *http.Request) { q.Header.Set("Last-Event-ID", hostile) })
		h := open(t, ctx, one, "/ls/local/file", 0)
		must(h.SetContents(ctx, []byte("x")))(t)
		if text := told(t, from, "contents-modified"); strings.Contains(text, "alert") || !strings.Contains(text, "contents-modified") {
			t.Errorf("of what the browser says it is told: %s", text)
		}
	})
}

// Nobody takes all streams: somebody else's are served.
func TestConsoleStreamsOfOne(t *testing.T) {
	inSecureConsoleCell(t, func(t *testing.T, ctx context.Context, c *consoleCell) {
		listening, end := context.WithCancel(ctx)
		defer end()
		ops := dial(t, ctx, c.Cell, "ops", client.Config{TLS: c.clients.client("ops"), NoCache: true})
		put(t, ctx, ops, "/ls/local/file", nil, api.ACL{})
		const stream = "/console/events/stream?path=/ls/local/file"
		greedy := c.login(t, "r1", "greedy")
		served := 0
		for range 16 {
			if a, _ := greedy.listen(listening, stream); a.code == http.StatusOK {
				served++
			} else if a.code != http.StatusServiceUnavailable {
				t.Errorf("status %d", a.code)
			}
		}
		equal(t, served, 4, "%d streams of one principal are served")
		if a, from := c.login(t, "r1", "alice").listen(listening, stream); a.code != http.StatusOK || !strings.Contains(told(t, from, "following"), "event: begin") {
			t.Errorf("another follows: status %d", a.code)
		}
	})
}

// A stream ends with the login that it was begun with, and says so.
func TestConsoleStreamEndsWithItsLogin(t *testing.T) {
	inSecureConsoleCell(t, func(t *testing.T, ctx context.Context, c *consoleCell) {
		listening, end := context.WithCancel(ctx)
		defer end()
		ops := dial(t, ctx, c.Cell, "ops", client.Config{TLS: c.clients.client("ops"), NoCache: true})
		h := open(t, ctx, ops, "/ls/local/file", 0)
		b := c.login(t, "r1", "alice")
		_, from := b.listen(listening, "/console/events/stream?path=/ls/local/file")
		if begun := told(t, from, "following"); !strings.Contains(begun, "event: begin") {
			t.Fatalf("the stream says %s", begun)
		}
		if a := (b.do(http.MethodPost, "/console/logout", map[string][]string{"csrf": {csrf(t, b.page("/console/"))}})); a.code != http.StatusSeeOther {
			t.Errorf("the logout: status %d", a.code)
		}
		must(h.SetContents(ctx, []byte("x")))(t)
		if text := told(t, from, "does not count any more"); !strings.Contains(text, "does not count any more") || strings.Contains(text, "contents-modified") {
			t.Errorf("after the logout the stream says %s", text)
		}
	})
}

// Who may not see everything is not told that there is nothing.
func TestConsoleSaysWhatItCannotSee(t *testing.T) {
	inSecureConsoleCell(t, func(t *testing.T, ctx context.Context, c *consoleCell) {
		ops := dial(t, ctx, c.Cell, "ops", client.Config{TLS: c.clients.client("ops")})
		put(t, ctx, ops, "/ls/local/acl/only-ops", []byte("ops\n"), api.ACL{})
		h, err := ops.Open(ctx, "/ls/local/hidden", client.OpenOptions{Read: true, Write: true, Create: client.File, ACL: api.ACL{Read: "only-ops", Write: "only-ops", Change: "only-ops"}})
		noErr(t, err)
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
		failIf(t, unlisted == 0, "all sessions were listed each time")
		<-done
		for i := range n {
			c.Heal(fmt.Sprint("reader", i))
		}
	})
}
