package cell_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

var formField = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// fill returns what a browser sends of the form of an act, with what somebody has put in.
func fill(t *testing.T, body string, with ...string) url.Values {
	t.Helper()
	form := url.Values{}
	_, body, _ = strings.Cut(body, `<section class="act">`)
	for _, m := range formField.FindAllStringSubmatch(body, -1) {
		form.Set(m[1], m[2])
	}
	stopIf(t, form.Get("csrf") == "", "no form:\n%s", body)
	for i := 0; i < len(with); i += 2 {
		form.Set(with[i], with[i+1])
	}
	return form
}

// A form is the confirmation of what it says. If that has changed since it was shown, nothing is done: the next holder of a lock does not lose it, no
// second tab hands the mastership over once more, and none undoes what another has set.
func TestConsoleStaleForms(t *testing.T) {
	inConsoleCell(t, 3, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		alice, bob := dial(t, ctx, c, "alice", client.Config{As: "alice"}), dial(t, ctx, c, "bob", client.Config{As: "bob"})
		b := cs.open(t, "r1", nil)
		refused := func(what string, a answer) {
			t.Helper()
			if a.code != http.StatusConflict || !strings.Contains(a.body, "It was not done: what the form is about has changed") || strings.Contains(a.body, "note good") {
				t.Errorf("%s: status %d\n%s", what, a.code, a.body)
			}
		}

		held := acquire(t, ctx, open(t, ctx, alice, "/ls/local/lock", 0))
		const breaking = "/console/act/break?path=/ls/local/lock"
		shown := b.page(breaking)
		failIf(t, !strings.Contains(shown, alice.Session().String()+" of alice"), "the form does not say who holds the lock:\n%s", shown)
		form := fill(t, shown, "reason", "it hangs")
		noErr(t, held.Release(ctx))
		refused("a form that speaks of something else", b.do(http.MethodPost, breaking, fill(t, b.page(breaking), "reason", "x", "seen", form.Get("seen")+"0")))
		next := acquire(t, ctx, open(t, ctx, bob, "/ls/local/lock", 0))
		a := b.do(http.MethodPost, breaking, form)
		refused("a lock that another holds now is broken", a)
		time.Sleep(time.Second)
		report(t, next.Err(), "bob, of whom the form did not speak, has lost the lock")
		if !strings.Contains(a.body, bob.Session().String()+" of bob") || !strings.Contains(a.body, `value="it hangs"`) {
			t.Errorf("the form does not say who holds the lock now, or has forgotten the reason:\n%s", a.body)
		}
		form = fill(t, a.body, "reason", "it hangs")
		b.do(http.MethodPost, breaking, form).is(t, http.StatusSeeOther, "after a look at who holds it")
		<-next.Context().Done()

		const setting = "/console/act/quota?principal=alice"
		tabs := []url.Values{fill(t, b.page(setting)), fill(t, b.page(setting))}
		for i, tab := range tabs {
			for j, name := range []string{"nodes", "bytes", "sessions", "handles", "waiters"} {
				tab.Set(name, []string{"1000", "2000"}[i]+strings.Repeat("0", j))
			}
		}
		b.do(http.MethodPost, setting, tabs[0]).is(t, http.StatusSeeOther, "a quota")
		refused("a quota is set by another tab", b.do(http.MethodPost, setting, tabs[1]))
		half := fill(t, b.page(setting), "nodes", "5")
		b.do(http.MethodPost, setting, half).is(t, http.StatusBadRequest, "a form without most of the numbers")
		use, _, err := alice.Cell().FindQuota(ctx, "alice", "")
		if want := (api.Quota{Nodes: 1000, Bytes: 10000, Sessions: 100000, Handles: 1000000, Waiters: 10000000}); err != nil || use.Allowed != want {
			t.Errorf("the quota is %+v, want %+v; %v", use.Allowed, want, err)
		}

		const handing = "/console/act/transfer"
		form = fill(t, b.page(handing))
		before := c.Master()
		if a := b.do(http.MethodPost, handing, form); a.code != http.StatusSeeOther || c.Master() == before {
			t.Errorf("the mastership: status %d\n%s", a.code, a.body)
		}
		after := c.Master()
		time.Sleep(5 * time.Second)
		refused("the mastership is handed over once more", b.do(http.MethodPost, handing, form))
		if now := c.Master(); now != after {
			t.Errorf("%s is the master, and %s was after the first time", now, after)
		}
	})
}

// An address says what was done only to who did it, soon after: nobody can make one that says so, and nobody keeps one.
func TestConsoleSaysOnlyWhatWasDone(t *testing.T) {
	inSecureConsoleCell(t, 1, func(t *testing.T, ctx context.Context, c *consoleCell) {
		ops, other := c.login(t, "r1", "ops"), c.login(t, "r1", "bob")
		says := func(what string, b *browser, address string, want bool) {
			t.Helper()
			if body := b.page(address); strings.Contains(body, "note good") != want {
				t.Errorf("%s: %s says that something was done: %v, want %v", what, address, !want, want)
			}
		}
		for _, mark := range []string{"break", "transfer", "quota.0.", "end..", "transfer.zzzzzz.AAAAAAAAAAAAAAAAAAAAAA", "quota." + url.QueryEscape("<b>")} {
			says("an address that somebody made up", ops, "/console/quotas?done="+mark, false)
		}
		form := fill(t, ops.page("/console/act/quota?principal=alice"), "nodes", "7", "bytes", "7", "sessions", "7", "handles", "7", "waiters", "7")
		a := ops.do(http.MethodPost, "/console/act/quota", form)
		to := a.header.Get("Location")
		stopIf(t, a.code != http.StatusSeeOther || to == "", "a quota: status %d\n%s", a.code, a.body)
		says("at once", ops, to, true)
		says("somebody else", other, to, false)
		says("as another act", ops, strings.Replace(to, "done=quota", "done=transfer", 1), false)
		time.Sleep(time.Minute)
		says("later", ops, to, false)
	})
}

// A link may say which thing a form is about, and nothing of what is to be done with it: who follows a link puts that in himself.
func TestConsoleFormsFromLinks(t *testing.T) {
	inConsoleCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		alice := dial(t, ctx, c, "alice", client.Config{As: "alice"})
		acquire(t, ctx, open(t, ctx, alice, "/ls/local/lock", 0))
		b := cs.open(t, "r1", nil)
		const evil = "&now=yes&reason=evil&nodes=1234567&to=evil&seen=evil&csrf=evil"
		for _, page := range []string{"/console/act/break?path=/ls/local/lock", "/console/act/end?session=" + alice.Session().String(), "/console/act/quota?principal=alice", "/console/act/transfer?x=y"} {
			body := b.page(page + evil)
			_, body, _ = strings.Cut(body, `<section class="act">`)
			if strings.Contains(body, "evil") || strings.Contains(body, "1234567") || strings.Contains(body, " checked") {
				t.Errorf("%s: a link has filled in the form:\n%s", page, body)
			}
		}
	})
}

// listen opens a stream of events, which ends with ctx, and that before the cell. The answer is its header alone.
func (b *browser) listen(ctx context.Context, path string, edits ...func(*http.Request)) (answer, *bufio.Reader) {
	b.t.Helper()
	q := must(http.NewRequestWithContext(ctx, http.MethodGet, b.base+path, nil))(b.t)
	for _, edit := range edits {
		edit(q)
	}
	reply, err := b.client.Do(q)
	noErr(b.t, err)
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
	inConsoleCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		listening, end := context.WithCancel(ctx)
		defer end()
		one := dial(t, ctx, c, "one", client.Config{NoCache: true})
		putText(t, ctx, one, "/ls/local/file", "")
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

// Nobody takes all streams: somebody else's are served. A stream ends with the login that it was begun with, and says so.
func TestConsoleStreamsOfOne(t *testing.T) {
	inSecureConsoleCell(t, 1, func(t *testing.T, ctx context.Context, c *consoleCell) {
		listening, end := context.WithCancel(ctx)
		defer end()
		ops := dial(t, ctx, c.Cell, "ops", client.Config{TLS: c.clients.client("ops"), NoCache: true})
		h := open(t, ctx, ops, "/ls/local/file", 0)
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
		b := c.login(t, "r1", "alice")
		a, from := b.listen(listening, stream)
		if a.code != http.StatusOK || !strings.Contains(told(t, from, "following"), "event: begin") {
			t.Errorf("another follows: status %d", a.code)
		}
		token := csrf(t, b.page("/console/"))
		b.do(http.MethodPost, "/console/logout", url.Values{"csrf": {token}}).is(t, http.StatusSeeOther, "the logout")
		must(h.SetContents(ctx, []byte("x")))(t)
		if text := told(t, from, "does not count any more"); !strings.Contains(text, "does not count any more") || strings.Contains(text, "contents-modified") {
			t.Errorf("after the logout the stream says %s", text)
		}
	})
}

// Who may not see everything is not told that there is nothing.
func TestConsoleSaysWhatItCannotSee(t *testing.T) {
	inSecureConsoleCell(t, 1, func(t *testing.T, ctx context.Context, c *consoleCell) {
		ops := c.as(t, ctx, "ops")
		putText(t, ctx, ops, "/ls/local/acl/only-ops", "ops\n")
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
	inConsoleCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		const n = 30 // of which ten are listed, each time others
		writer := dial(t, ctx, c, "writer", client.Config{NoCache: true})
		h := open(t, ctx, writer, "/ls/local/file", 0)
		var sessions []api.SessionID
		for i := range n {
			one := dial(t, ctx, c, fmt.Sprint("reader", i), client.Config{})
			cached := open(t, ctx, one, "/ls/local/file", 0)
			reads(t, ctx, cached, 2)
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
