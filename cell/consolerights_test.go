package cell_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/client"
)

// consoleCell is a cell with certificates, tokens and consoles.
type consoleCell struct {
	*tokenCell
	consoles
	audits string // the directory of the audit logs
}

// inSecureConsoleCell runs a test in a bubble, with a cell of which ops is the operator.
func inSecureConsoleCell(t *testing.T, replicas int, test func(*testing.T, context.Context, *consoleCell), edits ...func(*cell.Config)) {
	t.Helper()
	c := &consoleCell{audits: t.TempDir()}
	inTokenCell(t, replicas, func(t *testing.T, ctx context.Context, tc *tokenCell) {
		c.tokenCell = tc
		defer c.close()
		test(t, ctx, c)
	}, append([]func(*cell.Config){func(cfg *cell.Config) {
		cfg.Operators = []string{"ops"}
		cfg.Audit = cell.AuditConfig{File: filepath.Join(c.audits, cfg.ID), MiB: 1, Files: 1}
		c.edit(cfg)
	}}, edits...)...)
}

// secure is the TLS of a browser; name is the principal of its certificate, "" if it has none.
func (c *consoleCell) secure(t *testing.T, name string) *tls.Config {
	t.Helper()
	text := must(os.ReadFile(c.clients.file))(t)
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	config.RootCAs.AppendCertsFromPEM(text)
	if name != "" {
		files := c.clients.client(name)
		pair := must(tls.LoadX509KeyPair(files.Cert, files.Key))(t)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// raw is a token as a person copies it.
func (c *consoleCell) raw(principal string, lifetime time.Duration) string {
	token, err := c.issuer.Issue(principal, tokenAudience, lifetime)
	c.clients.check(err)
	return token
}

// login logs a browser in.
func (c *consoleCell) login(t *testing.T, id, principal string) *browser {
	t.Helper()
	b := c.open(t, id, c.secure(t, ""))
	a := b.do(http.MethodPost, "/console/login", url.Values{"csrf": {csrf(t, b.page("/console/login"))}, "token": {c.raw(principal, 2*time.Hour)}})
	stopIf(t, a.code != http.StatusSeeOther, "the login of %s: status %d\n%s", principal, a.code, a.body)
	return b
}

// Everybody is shown what he may see, and nothing else, at every replica: by a token or by a certificate.
func TestConsoleRights(t *testing.T) {
	inSecureConsoleCell(t, 3, func(t *testing.T, ctx context.Context, c *consoleCell) {
		alice := c.as(t, ctx, "alice")
		ops := c.as(t, ctx, "ops")
		putText(t, ctx, ops, "/ls/local/acl/alices", "alice\n")
		const secret = "/ls/local/secret"
		putText(t, ctx, ops, "/ls/local/open", "anybody")
		h, err := alice.Open(ctx, secret, client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: []byte("classified"), ACL: api.ACL{Read: "alices", Write: "alices", Change: "alices"}})
		noErr(t, err)
		must(h.Acquire(ctx, api.Exclusive, client.Reason("hush")))(t)
		acquire(t, ctx, open(t, ctx, ops, "/ls/local/open", 0))
		for _, id := range []string{c.Master(), follower(c.Cell)} {
			for who, b := range map[string]*browser{
				"alice": c.login(t, id, "alice"), "ops": c.login(t, id, "ops"), "bob": c.login(t, id, "bob"),
				"bob, by a certificate": c.open(t, id, c.secure(t, "bob")), "ops, by a certificate": c.open(t, id, c.secure(t, "ops")),
			} {
				sees := !strings.HasPrefix(who, "bob")
				for _, p := range pagesOf(alice.Session(), secret) {
					a := b.get(p)
					noScript(t, p, a)
					read := strings.HasPrefix(p, "/console/tree?path=") && strings.Contains(p, "secret") // which operators may not, either
					refused := read && who != "alice" || !sees && strings.HasPrefix(p, "/console/explain?")
					if want := map[bool]int{true: http.StatusForbidden, false: http.StatusOK}[refused]; a.code != want {
						t.Errorf("%s of %s for %s: status %d, want %d\n%s", p, id, who, a.code, want, a.body)
					}
					if !sees && (strings.Contains(a.body, "classified") || strings.Contains(a.body, "hush")) {
						t.Errorf("%s of %s tells %s:\n%s", p, id, who, a.body)
					}
				}
				if got := strings.Contains(b.page("/console/locks"), secret); got != sees {
					t.Errorf("%s sees the lock at %s: %v", who, id, got)
				}
				if got := strings.Contains(b.page("/console/sessions"), ">"+alice.Session().String()+"<"); got != sees {
					t.Errorf("%s sees the session at %s: %v", who, id, got)
				}
				if told := b.firstTold("/console/events/stream?path=" + secret); strings.Contains(told, "event: begin") != (who == "alice") {
					t.Errorf("%s may follow the file at %s: %s", who, id, told)
				}
				operator := strings.HasPrefix(who, "ops")
				if got := strings.Contains(b.page("/console/"), "Requests waiting"); got != operator {
					t.Errorf("%s sees the numbers of the cell at %s: %v", who, id, got)
				}
				for _, p := range []string{"/console/explain?path=/ls/local/open", "/console/"} {
					if got := strings.Contains(b.page(p), "/console/act/"); got != operator {
						t.Errorf("%s of %s offers acts to %s: %v", p, id, who, got)
					}
				}
			}
		}
	})
}

// Who has no right to act is refused by the master, whatever form he sends, and who may act is asked once more and then obeyed.
func TestConsoleActs(t *testing.T) {
	inSecureConsoleCell(t, 3, func(t *testing.T, ctx context.Context, c *consoleCell) {
		alice := c.as(t, ctx, "alice")
		ops := c.as(t, ctx, "ops")
		putText(t, ctx, ops, "/ls/local/open", "")
		lock := acquire(t, ctx, open(t, ctx, alice, "/ls/local/open", 0))
		master := c.Master()
		other := others(3, master)[0]
		acts := []struct {
			page string
			form url.Values
			done func() bool
		}{
			{"/console/act/break?path=/ls/local/open", url.Values{"path": {"/ls/local/open"}, "reason": {"it hangs"}}, func() bool {
				<-lock.Context().Done() // its client hears of it
				return lock.Err() != nil
			}},
			{"/console/act/quota?principal=alice", url.Values{"principal": {"alice"}, "nodes": {"77"}, "bytes": {"0"}, "sessions": {"0"}, "handles": {"0"}, "waiters": {"0"}}, func() bool {
				quotas, err := ops.Cell().Quotas(ctx)
				return err == nil && slices.ContainsFunc(quotas, func(q client.QuotaUse) bool { return q.Principal == "alice" && q.Allowed.Nodes == 77 })
			}},
			{"/console/act/end?session=" + alice.Session().String(), url.Values{"session": {alice.Session().String()}, "reason": {"it is gone"}}, func() bool {
				<-alice.Done()
				return true
			}},
			{"/console/act/transfer", url.Values{"to": {other}}, func() bool { return c.Master() == other }},
		}
		for _, who := range []string{"bob", "ops"} {
			b := c.login(t, other, who)
			for _, act := range acts {
				address, _, _ := strings.Cut(act.page, "?")
				page := b.get(act.page)
				seen := fill(t, page.body).Get("seen")
				token := csrf(t, b.page("/console/"))
				send := func(edit func(url.Values), edits ...func(*http.Request)) answer {
					form := url.Values{"csrf": {token}, "seen": {seen}}
					for name, values := range act.form {
						form[name] = values
					}
					edit(form)
					return b.do(http.MethodPost, address, form, edits...)
				}
				for what, a := range map[string]answer{
					"without the token of the form": send(func(f url.Values) { f.Del("csrf") }),
					"with another's":                send(func(f url.Values) { f.Set("csrf", "AAAAAAAAAAAAAAAAAAAAAA") }),
					"from another site":             send(func(url.Values) {}, func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") }),
					"from another origin": send(func(url.Values) {}, func(q *http.Request) {
						q.Header.Del("Sec-Fetch-Site")
						q.Header.Set("Origin", "https://evil.example")
					}),
				} {
					failIf(t, a.code != http.StatusForbidden, "%s %s: status %d\n%s", address, what, a.code, a.body)
				}
				failIf(t, who == "ops" && page.code != http.StatusOK, "%s: status %d\n%s", act.page, page.code, page.body)
				a := send(func(url.Values) {})
				if who == "bob" {
					if a.code != http.StatusForbidden || !strings.Contains(a.body, "operator") {
						t.Errorf("%s by %s: status %d\n%s", address, who, a.code, a.body)
					}
					continue
				}
				if a.code != http.StatusSeeOther || !act.done() {
					t.Errorf("%s by %s: status %d\n%s", address, who, a.code, a.body)
					continue
				}
				if to := a.header.Get("Location"); !strings.Contains(b.page(to), `class="note good"`) {
					t.Errorf("%s leads to %s, which does not say that it is done", address, to)
				}
			}
		}
		var log []byte
		for _, id := range []string{"r1", "r2", "r3"} {
			for _, name := range []string{id, audit.RefusedFile(id)} {
				text := must(os.ReadFile(filepath.Join(c.audits, name)))(t)
				log = append(log, text...)
			}
		}
		for _, call := range []string{"BreakLock", "SetQuota", "EndSession", "Transfer"} {
			for _, who := range []string{`"principal":"ops"`, `"principal":"bob"`} {
				if !slices.ContainsFunc(strings.Split(string(log), "\n"), func(line string) bool {
					return strings.Contains(line, `"call":"`+call+`"`) && strings.Contains(line, who) && strings.Contains(line, `"from":"192.0.2.7:`) && strings.Contains(line, `"by":"`+other+`"`)
				}) {
					t.Errorf("no %s of %s, from where his browser is, by the replica of the console, in the audit log:\n%s", call, who, log)
				}
			}
		}
	})
}

// A login is by a token that counts, is bound to its browser, and ends.
func TestConsoleLogin(t *testing.T) {
	inSecureConsoleCell(t, 1, func(t *testing.T, _ context.Context, c *consoleCell) {
		b := c.open(t, "r1", c.secure(t, ""))
		for _, p := range append(pagesOf(1, "/ls/local/x"), "/console/act/transfer", "/console/quotas") {
			if a := b.get(p); a.code != http.StatusSeeOther || a.header.Get("Location") != "/console/login?to="+url.QueryEscape(p) {
				t.Errorf("%s: status %d, to %s", p, a.code, a.header.Get("Location"))
			}
			if a := b.get(p, asUpdate); a.code != http.StatusNoContent || a.header.Get("HX-Refresh") != "true" || a.body != "" {
				t.Errorf("an update of %s: status %d %v %s", p, a.code, a.header, a.body)
			}
		}
		equal(t, b.get("/console/events/stream?path=/ls/local").code, http.StatusForbidden, "the stream: status %d")
		long := b.get("/console/explain?path=" + url.QueryEscape("/ls/local/"+strings.Repeat("é", 500)))
		long.is(t, http.StatusSeeOther, "a page with a long address")
		b.page(long.header.Get("Location"))
		token := csrf(t, b.page("/console/login?to=//evil.example/"))
		for what, raw := range map[string]string{
			"nothing": "", "nonsense": "a.b.c", "one that has ended": c.raw("ops", -time.Minute), "a name with another sense": c.raw("@operators", time.Hour), "a long one": strings.Repeat("a", 17<<10),
		} {
			a := b.do(http.MethodPost, "/console/login", url.Values{"csrf": {token}, "token": {raw}})
			if a.code != http.StatusUnauthorized || len(a.header.Values("Set-Cookie")) > 0 || raw != "" && strings.Contains(a.body, raw) {
				t.Errorf("%s: status %d %v\n%s", what, a.code, a.header, a.body)
			}
		}
		good := c.raw("ops", 2*time.Hour)
		if a := (b.do(http.MethodPost, "/console/login", url.Values{"token": {good}})); a.code != http.StatusForbidden {
			t.Errorf("without the token of the form: status %d", a.code)
		}
		if a := (b.do(http.MethodPost, "/console/login", url.Values{"csrf": {token}, "token": {good}, "pad": {strings.Repeat("a", 64<<10)}})); a.code != http.StatusRequestEntityTooLarge {
			t.Errorf("a form that is too long: status %d", a.code)
		}
		a := b.do(http.MethodPost, "/console/login", url.Values{"csrf": {token}, "token": {good}, "to": {"https://evil.example/"}})
		if a.code != http.StatusSeeOther || a.header.Get("Location") != "/console/" {
			t.Fatalf("the login: status %d, to %s\n%s", a.code, a.header.Get("Location"), a.body)
		}
		for _, want := range []string{"__Host-chubby-r1=", "; Path=/", "; Max-Age=3600", "; HttpOnly", "; Secure", "; SameSite=Strict"} {
			if got := a.header.Get("Set-Cookie"); !strings.Contains(got, want) || strings.Contains(got, "Domain") {
				t.Errorf("the cookie is %q, without %q", got, want)
			}
		}
		body := b.page("/console/")
		failIf(t, !strings.Contains(body, ">ops<"), "the page does not say who looks at it:\n%s", body)
		stolen := b.jar.Cookies(&url.URL{Scheme: "https", Host: "r1", Path: "/"})
		b.do(http.MethodPost, "/console/logout", url.Values{"csrf": {csrf(t, body)}}).is(t, http.StatusSeeOther, "the logout")
		b.get("/console/", func(q *http.Request) { q.AddCookie(stolen[0]) }).is(t, http.StatusSeeOther, "after the logout")
		text, err := os.ReadFile(filepath.Join(c.audits, audit.RefusedFile("r1")))
		if err != nil || !strings.Contains(string(text), `"call":"Authenticate"`) || strings.Contains(string(text), good) {
			t.Errorf("the audit log: %v\n%s", err, text)
		}
	})
}

// A login ends with its token, and who shows a certificate is turned away when it is revoked.
func TestConsoleLoginsEnd(t *testing.T) {
	inSecureConsoleCell(t, 1, func(t *testing.T, _ context.Context, c *consoleCell) {
		short := c.open(t, "r1", c.secure(t, ""))
		if a := (short.do(http.MethodPost, "/console/login", url.Values{"csrf": {csrf(t, short.page("/console/login"))}, "token": {c.raw("ops", time.Minute)}})); a.code != 303 {
			t.Fatalf("the login: status %d", a.code)
		}
		short.page("/console/locks")
		time.Sleep(2 * time.Minute)
		short.get("/console/locks").is(t, 303, "after two minutes")

		files := c.clients.client("ops")
		pair := must(tls.LoadX509KeyPair(files.Cert, files.Key))(t)
		config := c.secure(t, "")
		config.Certificates = []tls.Certificate{pair}
		b := c.open(t, "r1", config)
		b.page("/console/locks")
		c.clients.revoke(c.crl, files.Cert)
		time.Sleep(20 * time.Second)
		equal(t, b.get("/console/locks").code, 303, "with a revoked certificate: status %d")
		if body := b.page("/console/login"); !strings.Contains(body, "was revoked") {
			t.Errorf("the login does not say why:\n%s", body)
		}
	})
}

// In a cell with certificates nothing of the console is said in the clear, and what probes and Prometheus ask for still is.
func TestConsoleOverTLSOnly(t *testing.T) {
	log := &logged{}
	inSecureConsoleCell(t, 1, func(t *testing.T, _ context.Context, c *consoleCell) {
		b := c.open(t, "r1", nil)
		for _, p := range pagesOf(1, "/ls/local/x") {
			if a := b.get(p); a.code != http.StatusSeeOther || a.header.Get("Location") != "https://localhost:7441"+p {
				t.Errorf("%s in the clear: status %d, to %s", p, a.code, a.header.Get("Location"))
			}
		}
		if a := (b.do(http.MethodPost, "/console/login", url.Values{"token": {c.raw("ops", time.Hour)}})); a.code != http.StatusForbidden || !strings.Contains(a.body, "over TLS only") {
			t.Errorf("a login in the clear: status %d, %s", a.code, a.body)
		}
		testbed.Await(t, "r1 knows the master", func() bool { return c.Replica("r1").Health().Ready })
		for _, p := range []string{"/healthz", "/readyz", "/metrics"} {
			b.page(p)
			c.open(t, "r1", c.secure(t, "")).page(p)
		}
		for range 100 {
			conn := must(c.port("r1").dial(t.Context(), "192.0.2.9"))(t)
			_, _ = conn.Write([]byte{22, 0, 0, 0, 1, 0})
			_ = conn.Close()
		}
		testbed.Pass(time.Second)
		if lines := log.events(t, "event", "connection_refused"); len(lines) == 0 || len(lines) > 2 {
			t.Errorf("a hundred handshakes have failed, and the log has %d lines about that: %v", len(lines), lines)
		}
		conn := must(c.port("r1").dial(t.Context(), "192.0.2.8"))(t)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		began := time.Now()
		if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(began) > 10*time.Second {
			t.Errorf("a connection that says nothing is kept for %v: %v", time.Since(began), err)
		}
	}, log.to)
}
