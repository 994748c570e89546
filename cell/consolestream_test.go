package cell_test

import (
	"bufio"
	"context"
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
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, edit := range edits {
		edit(q)
	}
	reply, err := b.client.Do(q)
	if err != nil {
		b.t.Fatal(err)
	}
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
		if strings.Contains(first, "interrupted") {
			t.Errorf("the first stream speaks of an interruption: %s", first)
		}
		_, from = b.listen(listening, stream, func(q *http.Request) { q.Header.Set("Last-Event-ID", id) })
		if again := told(t, from, "interrupted"); !strings.Contains(again, "event: begin") || !strings.Contains(again, "What has happened since "+id+" is not shown") {
			t.Errorf("the stream goes on as if nothing had been missed: %s", again)
		}
		_, from = b.listen(listening, stream, func(q *http.Request) { q.Header.Set("Last-Event-ID", hostile) })
		h := open(t, ctx, one, "/ls/local/file", 0)
		if _, err := h.SetContents(ctx, []byte("x")); err != nil {
			t.Fatal(err)
		}
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
		if served != 4 {
			t.Errorf("%d streams of one principal are served, want 4", served)
		}
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
		if _, err := h.SetContents(ctx, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if text := told(t, from, "does not count any more"); !strings.Contains(text, "does not count any more") || strings.Contains(text, "contents-modified") {
			t.Errorf("after the logout the stream says %s", text)
		}
	})
}
