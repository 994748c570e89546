package cell_test

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
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
	if form.Get("csrf") == "" {
		t.Fatalf("no form:\n%s", body)
	}
	for i := 0; i < len(with); i += 2 {
		form.Set(with[i], with[i+1])
	}
	return form
}

// A form is the confirmation of what it says. If that has changed since it was shown, nothing is done: the next holder of a lock does not lose it, no
// second tab hands the mastership over once more, and none undoes what another has set.
func TestConsoleStaleForms(t *testing.T) {
	inConsoleCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
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
		if !strings.Contains(shown, alice.Session().String()+" of alice") {
			t.Errorf("the form does not say who holds the lock:\n%s", shown)
		}
		form := fill(t, shown, "reason", "it hangs")
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		refused("a form that speaks of something else", b.do(http.MethodPost, breaking, fill(t, b.page(breaking), "reason", "x", "seen", form.Get("seen")+"0")))
		next := acquire(t, ctx, open(t, ctx, bob, "/ls/local/lock", 0))
		a := b.do(http.MethodPost, breaking, form)
		refused("a lock that another holds now is broken", a)
		time.Sleep(time.Second)
		if err := next.Err(); err != nil {
			t.Errorf("bob, of whom the form did not speak, has lost the lock: %v", err)
		}
		if !strings.Contains(a.body, bob.Session().String()+" of bob") || !strings.Contains(a.body, `value="it hangs"`) {
			t.Errorf("the form does not say who holds the lock now, or has forgotten the reason:\n%s", a.body)
		}
		form = fill(t, a.body, "reason", "it hangs")
		if a := b.do(http.MethodPost, breaking, form); a.code != http.StatusSeeOther {
			t.Errorf("after a look at who holds it: status %d\n%s", a.code, a.body)
		}
		<-next.Context().Done()

		const setting = "/console/act/quota?principal=alice"
		tabs := []url.Values{fill(t, b.page(setting)), fill(t, b.page(setting))}
		for i, tab := range tabs {
			for j, name := range []string{"nodes", "bytes", "sessions", "handles", "waiters"} {
				tab.Set(name, []string{"1000", "2000"}[i]+strings.Repeat("0", j))
			}
		}
		if a := b.do(http.MethodPost, setting, tabs[0]); a.code != http.StatusSeeOther {
			t.Errorf("a quota: status %d\n%s", a.code, a.body)
		}
		refused("a quota is set by another tab", b.do(http.MethodPost, setting, tabs[1]))
		half := fill(t, b.page(setting), "nodes", "5")
		if a := b.do(http.MethodPost, setting, half); a.code != http.StatusBadRequest {
			t.Errorf("a form without most of the numbers: status %d\n%s", a.code, a.body)
		}
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
	inSecureConsoleCell(t, func(t *testing.T, ctx context.Context, c *consoleCell) {
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
		if a.code != http.StatusSeeOther || to == "" {
			t.Fatalf("a quota: status %d\n%s", a.code, a.body)
		}
		says("at once", ops, to, true)
		says("somebody else", other, to, false)
		says("as another act", ops, strings.Replace(to, "done=quota", "done=transfer", 1), false)
		time.Sleep(time.Minute)
		says("later", ops, to, false)
	})
}

// A link may say which thing a form is about, and nothing of what is to be done with it: who follows a link puts that in himself.
func TestConsoleFormsFromLinks(t *testing.T) {
	inConsoleCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
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

// Bytes that are not valid text are refused at once, as such: they do not reach the master, and the page does not wait for one.
func TestConsoleRefusesWhatIsNoText(t *testing.T) {
	inConsoleCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, cs *consoles) {
		acquire(t, ctx, open(t, ctx, dial(t, ctx, c, "alice", client.Config{As: "alice"}), "/ls/local/lock", 0))
		b := cs.open(t, "r2", nil)
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

// A page with a long address leads to the login as any other.
func TestConsoleLoginForALongAddress(t *testing.T) {
	inSecureConsoleCell(t, func(t *testing.T, _ context.Context, c *consoleCell) {
		b := c.open(t, "r1", c.secure(t, ""))
		a := b.get("/console/explain?path=" + url.QueryEscape("/ls/local/"+strings.Repeat("é", 500)))
		if a.code != http.StatusSeeOther {
			t.Fatalf("status %d", a.code)
		}
		b.page(a.header.Get("Location"))
	})
}
