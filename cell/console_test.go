package cell_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/misuse"
)

// pagesOf are all pages of a console; each function of a page is in it once, or a law below fails.
func pagesOf(session api.SessionID, path string) []string {
	p := url.QueryEscape(path)
	return []string{
		"/console/", "/console/locks", "/console/locks?under=" + p, "/console/sessions", "/console/sessions/" + session.String(),
		"/console/tree", "/console/tree?path=" + p, "/console/explain", "/console/explain?path=" + p,
		"/console/waits", "/console/quotas", "/console/misuse", "/console/takeovers", "/console/events", "/console/events?path=" + p,
	}
}

const hostile = `<script>alert(1)</script>"'&amp;<img src=x onerror=alert(2)>`

// noScript fails if a page has anything in it that a browser would run, or that came from the cell unescaped.
func noScript(t *testing.T, path string, a answer) {
	t.Helper()
	for _, bad := range []string{"<script>alert", "<img src=x", "javascript:", " onclick=", " onload=", " style="} {
		failIf(t, strings.Contains(a.body, bad), "%s has %q in it:\n%s", path, bad, a.body)
	}
	for _, script := range regexp.MustCompile(`<script[^>]*>[^<]*`).FindAllString(a.body, -1) {
		if !strings.Contains(script, ` src="/console/static/`) || !strings.HasSuffix(script, ">") {
			t.Errorf("%s has the script %q in it", path, script)
		}
	}
	policy := a.header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"} {
		failIf(t, !strings.Contains(policy, want), "%s: the policy %q lacks %q", path, policy, want)
	}
	if strings.Contains(policy, "unsafe") || a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s: the header is %v", path, a.header)
	}
}

// inConsoleCell runs a test in a bubble, with a cell of that many replicas with consoles, without certificates.
func inConsoleCell(t *testing.T, replicas int, test func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles)) {
	t.Helper()
	inBubble(t, 30*time.Minute, func(t *testing.T, ctx context.Context) {
		cs := &consoles{}
		defer cs.close()
		test(t, ctx, celltest.Start(t, replicas, cs.edit), cs)
	})
}

// Every page of every replica, master or not, shows what the master says, and whatever names and contents are made of is text in it.
func TestConsolePages(t *testing.T) {
	inConsoleCell(t, 3, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		const path = "/ls/local/<b>'name&amp;"
		one := dial(t, ctx, c, hostile, client.Config{As: "<i>alice</i>"})
		putText(t, ctx, one, path, hostile)
		putText(t, ctx, one, "/ls/local/binary", "\x00\x01\x02\xff<")
		lock := must(open(t, ctx, one, path, 0).Acquire(ctx, api.Exclusive, client.Reason(hostile)))(t)
		two := dial(t, ctx, c, "two", client.Config{})
		waiting := open(t, ctx, two, path, 0)
		ended := make(chan struct{})
		waits, stop := context.WithCancel(ctx)
		go func() {
			defer close(ended)
			_, _ = waiting.Acquire(waits, api.Exclusive, client.Reason("it waits"))
		}()
		time.Sleep(15 * time.Second)
		for _, id := range []string{"r1", "r2", "r3"} {
			b := cs.open(t, id, nil)
			for _, p := range pagesOf(one.Session(), path) {
				a := b.get(p)
				failIf(t, a.code != http.StatusOK, "%s of %s: status %d\n%s", p, id, a.code, a.body)
				noScript(t, p, a)
			}
			for p, want := range map[string][]string{
				"/console/":      {"3 of 3", ">" + c.Master() + "<", html.EscapeString(path), "15 s"},
				"/console/locks": {html.EscapeString(path), "exclusive", one.Session().String(), "15 s", "&lt;i&gt;alice&lt;/i&gt;"},
				"/console/sessions/" + one.Session().String():               {html.EscapeString(path), "at least", "No change waits"},
				"/console/tree?path=" + url.QueryEscape(path):               {"&lt;script&gt;alert(1)&lt;/script&gt;", "Content generation"},
				"/console/tree?path=" + url.QueryEscape("/ls/local"):        {html.EscapeString("<b>'name&amp;"), "binary"},
				"/console/tree?path=" + url.QueryEscape("/ls/local/binary"): {"00 01 02 ff 3c", "hexadecimal"},
				"/console/explain?path=" + url.QueryEscape(path):            {"it waits", two.Session().String(), "Queue", "History", "now</span>"},
			} {
				body := b.page(p)
				for _, w := range want {
					failIf(t, !strings.Contains(body, w), "%s of %s does not say %q:\n%s", p, id, w, body)
				}
			}
		}
		stop()
		<-ended
		report(t, lock.Release(ctx))
	})
}

// What is not there, or cannot be read, is a page that says so. Bytes that are not valid text are refused at once, as such: they do not
// reach the master, and the page does not wait for one.
func TestConsoleWrongAddresses(t *testing.T) {
	inConsoleCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		b := cs.open(t, "r1", nil)
		for path, code := range map[string]int{
			"/console/sessions/7":                               404,
			"/console/sessions/x":                               400,
			"/console/sessions/s0":                              400,
			"/console/tree?path=/ls/local/none":                 404,
			"/console/tree?path=none":                           404,
			"/console/tree?path=ls/local":                       400,
			"/console/tree?path=/ls/other/x":                    400,
			"/console/tree?after=!":                             400,
			"/console/locks?after=!":                            400,
			"/console/locks?under=" + url.QueryEscape(hostile):  200,
			"/console/locks?under=//x":                          400,
			"/console/explain?path=/ls/other/x":                 400,
			"/console/none":                                     404,
			"/console/static/none.js":                           404,
			"/console/static/..%2fdoc.go":                       404,
			"/console/locks?under=" + strings.Repeat("a", 5000): 414,
			"/none":    404,
			"/":        303,
			"/console": 303,
		} {
			a := b.get(path)
			failIf(t, a.code != code, "%.80s: status %d, want %d\n%s", path, a.code, code, a.body)
			if strings.HasPrefix(path, "/console/") {
				noScript(t, path, a)
			}
		}
		for _, method := range []string{"PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"} {
			if a := b.do(method, "/console/", nil, func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "same-origin") }); a.code != 405 {
				t.Errorf("%s: status %d", method, a.code)
			}
		}
		if a := b.do("GET", "/console/", nil, func(q *http.Request) { q.Body, q.ContentLength = io.NopCloser(strings.NewReader("abc")), 3 }); a.code != 413 {
			t.Errorf("a body: status %d", a.code)
		}

		acquire(t, ctx, open(t, ctx, dial(t, ctx, c, "alice", client.Config{As: "alice"}), "/ls/local/lock", 0))
		quick := func(what string, ask func() answer) {
			t.Helper()
			began := time.Now()
			a := ask()
			if took := time.Since(began); took > time.Second || a.code >= 500 {
				t.Errorf("%s: status %d after %v\n%s", what, a.code, took, a.body)
			}
			noScript(t, what, a)
			if problem := a.header.Get("X-Console-Problem"); problem != "" {
				if text, err := url.PathUnescape(problem); err != nil || !slices.Equal([]rune(text), []rune(strings.ToValidUTF8(text, ""))) {
					t.Errorf("%s: a script cannot read %q", what, problem)
				}
			}
		}
		for _, page := range []string{"locks?under=%ff", "locks?after=_w", "sessions?after=_w", "quotas?after=_w", "tree?path=/ls/local&after=_w", "tree?path=/ls/local/%ff", "explain?path=/ls/local/%ff", "act/quota?principal=%ff", "act/quota?path=/ls/local/%ff", "act/break?path=%ff", "sessions/%ff"} {
			quick(page, func() answer { return b.get("/console/" + page) })
			quick(page, func() answer { return b.get("/console/"+page, asUpdate) })
		}
		const breaking = "/console/act/break?path=/ls/local/lock"
		quick("a reason", func() answer { return b.do(http.MethodPost, breaking, fill(t, b.page(breaking), "reason", "\xff")) })
		quick("a successor", func() answer {
			return b.do(http.MethodPost, "/console/act/transfer", fill(t, b.page("/console/act/transfer"), "to", "\xff"))
		})
	})
}

// A path may be written as chubbyctl takes it, and of one that is not there that is said.
func TestConsolePathsAsTyped(t *testing.T) {
	inConsoleCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		cl := dial(t, ctx, c, "a", client.Config{})
		putText(t, ctx, cl, "/ls/local/d", "x")
		b := cs.open(t, "r1", nil)
		for path, want := range map[string]string{
			"/console/tree?path=d":           "path=%2Fls%2Flocal%2Fd",
			"/console/tree?path=%20/d/":      "path=%2Fls%2Flocal%2Fd",
			"/console/tree?path=/ls/local/":  ">/ls/local</a>",
			"/console/explain?path=/d":       `>/ls/local/d<`,
			"/console/locks?under=d":         "No lock at or below /ls/local/d is held",
			"/console/locks?under=none":      "There is no such path. No lock",
			"/console/explain?path=none":     "There is no such node, so nobody holds its lock.",
			"/console/events?path=/ls/local": "/ls/local",
		} {
			if a := b.get(path); a.code != 200 || !strings.Contains(a.body, want) {
				t.Errorf("%s: status %d, without %q:\n%s", path, a.code, want, a.body)
			}
		}
	})
}

// Where nobody logs in, a name that somebody else gave to this machine does not open the console: else his pages could act as the
// console's own.
func TestConsoleOwnHost(t *testing.T) {
	inConsoleCell(t, 1, func(t *testing.T, _ context.Context, _ *celltest.Cell, cs *consoles) {
		b := cs.open(t, "r1", nil)
		for host, code := range map[string]int{"localhost": 200, "127.0.0.1:7441": 200, "[::1]:7441": 200, "evil.example": 421, "evil.example:7441": 421, "10.0.0.1": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421} {
			b.get("/console/", func(q *http.Request) { q.Host = host }).is(t, code, host)
		}
	})
}

// Long lists come in parts, of which each row is in one; and a form is filled in with what is so now, wherever that is in the list.
func TestConsoleParts(t *testing.T) {
	inConsoleCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		one := dial(t, ctx, c, "one", client.Config{NoCache: true})
		const n = 230
		for i := range n {
			acquire(t, ctx, open(t, ctx, one, fmt.Sprintf("/ls/local/lock%03d", i), 0))
			other := must(one.Cell().NewSession(ctx, client.SessionConfig{As: fmt.Sprintf("principal%03d", i), NoCache: true}))(t)
			defer func() { _ = other.Close(ctx) }()
		}
		b := cs.open(t, "r1", nil)
		for first, row := range map[string]*regexp.Regexp{
			"/console/locks":               regexp.MustCompile(`<th scope="row"><a class="path"[^>]*>/ls/local/(lock\d+)<`),
			"/console/tree?path=/ls/local": regexp.MustCompile(`<th scope="row"><a class="path"[^>]*>(lock\d+)<`),
			"/console/sessions":            regexp.MustCompile(`<td>(principal\d+)</td>`),
			"/console/quotas":              regexp.MustCompile(`<th scope="row">(principal\d+)</th>`),
		} {
			seen, pages := map[string]int{}, 0
			for next := first; next != ""; pages++ {
				body := b.page(next)
				for _, m := range row.FindAllStringSubmatch(body, -1) {
					seen[m[1]]++
				}
				if rows := len(row.FindAllString(body, -1)); rows > 100 {
					t.Errorf("%s has %d rows", next, rows)
				}
				next = ""
				if m := regexp.MustCompile(`<a href="([^"]+)" rel="next">`).FindStringSubmatch(body); m != nil {
					next = html.UnescapeString(m[1])
				}
			}
			failIf(t, len(seen) != n || pages != 3, "%s: %d rows on %d pages, want %d on 3", first, len(seen), pages, n)
			for name, times := range seen {
				failIf(t, times != 1, "%s: %s is there %d times", first, name, times)
			}
		}
		noErr(t, one.SetPrincipalQuota(ctx, "principal123", api.Quota{Nodes: 4711}))
		for name, want := range map[string]string{"principal123": "4711", "nobody so far": fmt.Sprint(api.DefaultQuota().Nodes)} {
			if body := b.page("/console/act/quota?principal=" + url.QueryEscape(name)); !strings.Contains(body, `value="`+want+`"`) {
				t.Errorf("the form for the quota of %s does not say %s:\n%s", name, want, body)
			}
		}
	})
}

// The console of a replica shows the next master's data when its master dies, and says meanwhile that it has no news.
func TestConsoleSurvivesTheMaster(t *testing.T) {
	inConsoleCell(t, 3, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		one := dial(t, ctx, c, "one", client.Config{})
		acquire(t, ctx, open(t, ctx, one, "/ls/local/lock", 0))
		first := c.Master()
		others := others(3, first)
		b := cs.open(t, others[0], nil)
		b.page("/console/locks")
		c.Kill(first)
		for range 20 {
			switch a := b.get("/console/locks", asUpdate); {
			case a.code == http.StatusOK && strings.Contains(a.body, "/ls/local/lock"):
			case a.code == http.StatusNoContent && a.header.Get("X-Console-Problem") != "":
			default:
				t.Fatalf("an update is answered with %d %v:\n%s", a.code, a.header, a.body)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if body := b.page("/console/"); !strings.Contains(body, "2 of 3") || !strings.Contains(body, "no answer") || !strings.Contains(body, ">"+c.Master()+"<") {
			t.Errorf("after the death of %s:\n%s", first, body)
		}
		if body := b.page("/console/locks"); !strings.Contains(body, "/ls/local/lock") {
			t.Errorf("the lock is not shown:\n%s", body)
		}
		c.Kill(c.Master()) // no majority is left
		late := cs.open(t, others[0], nil)
		if c.Replica(others[0]) == nil {
			late = cs.open(t, others[1], nil)
		}
		if a := late.get("/console/locks"); a.code != http.StatusServiceUnavailable {
			t.Errorf("without a master: status %d\n%s", a.code, a.body)
		}
		if a := late.get("/console/locks", asUpdate); a.code != http.StatusNoContent || a.header.Get("X-Console-Problem") == "" {
			t.Errorf("an update without a master: status %d %v", a.code, a.header)
		}
	})
}

// A configuration by which strangers could reach a console in the clear is refused.
func TestConsoleIsForThisMachineWithoutTLS(t *testing.T) {
	cfg := cell.Config{Cell: "foo", ID: "r1", Data: t.TempDir(), ClientMemoryMiB: cell.DefaultClientMemoryMiB, Console: true}
	for address, want := range map[string]string{
		"": "no http port", "127.0.0.1:7441": "", "localhost:7441": "", "[::1]:7441": "", "h1:7441": "this machine alone", "10.0.0.1:7441": "this machine alone", "0.0.0.0:7441": "this machine alone",
	} {
		cfg.Members = []cell.Member{{ID: "r1", Client: "h1:7421", Raft: "h1:7431", HTTP: address}}
		if err := cfg.Check(); (err == nil) != (want == "") || want != "" && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
	}
	cfg.ClientTLS, cfg.PeerTLS = certs.Files{Cert: "a", Key: "b", CA: "c"}, certs.Files{Cert: "a", Key: "b", CA: "c"}
	cfg.Members[0].HTTP = "h1:7441"
	report(t, cfg.Check(), "with certificates")
}

// Who misuses the cell is named on a page, with the rules that it breaks, each once, and what it should do instead; names are text in it.
func TestConsoleMisuse(t *testing.T) {
	inConsoleCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		b := cs.open(t, "r1", nil)
		if body := b.page("/console/misuse"); !strings.Contains(body, "No client misuses the cell.") {
			t.Errorf("of a cell that nobody uses, the page says:\n%s", body)
		}
		const path = "/ls/local/<b>'name&amp;"
		one := dial(t, ctx, c, "one", client.Config{As: "<i>alice</i>", NoCache: true, Lease: 2 * time.Second})
		putText(t, ctx, one, path, hostile)
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

// After a fail-over every console shows its phases, in text; of one with a client that does not return, that this goes on. Each is
// measured once: the first two are the whole, and the others begin then; the caches take a cache lease, as one client cannot be reached.
func TestConsoleTakeovers(t *testing.T) {
	inConsoleCell(t, 3, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		near, far := dial(t, ctx, c, "near", client.Config{}), dial(t, ctx, c, "far", client.Config{})
		open(t, ctx, near, "/ls/local/file", 0)
		open(t, ctx, far, "/ls/local/file", 0)
		c.Cut("far")
		c.FailOver()
		acquire(t, ctx, open(t, ctx, near, "/ls/local/lock", 0))
		time.Sleep(5 * time.Second)
		counts, sums := cell.Measured(c.Replica(c.Master()))
		const phase = "chubby_takeover_phase_seconds "
		for _, name := range []string{"election", "log", "leases", "first_lease", "caches"} {
			failIf(t, counts[phase+name] != 1, "%s was measured %d times; want once", name, counts[phase+name])
		}
		equal(t, counts["chubby_takeover_seconds"], 1, "the take-over was measured %d times")
		if parts, whole := sums[phase+"log"]+sums[phase+"leases"], sums["chubby_takeover_seconds"]; math.Abs(parts-whole) > 1e-9 {
			t.Errorf("log and leases took %v s, and the take-over %v", parts, whole)
		}
		if took, first := sums[phase+"caches"], sums[phase+"first_lease"]; took < 1 || took > api.CacheLease.Seconds()+1 || first > took {
			t.Errorf("caches took %v s, with a cache lease of %v, and the first lease %v s", took, api.CacheLease, first)
		}
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
				failIf(t, !strings.Contains(body, want), "%s does not say %q:\n%s", id, want, body)
			}
		}
		time.Sleep(time.Minute) // the session of the client that cannot be reached has ended
		counts, _ = cell.Measured(c.Replica(c.Master()))
		equal(t, counts[phase+"sessions"], 1, "the return of the sessions was measured %d times")
		if body, phases := look(c.Master()); strings.Contains(body, "so far") || len(phases) != 7 {
			t.Errorf("at the end there are %v:\n%s", phases, body)
		}
		c.Heal("far")
	})
}
