package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/chubbylock/chubby/cell/internal/origin"
)

// New returns a console.
func New(cfg Config) *Console {
	c := &Console{
		cfg: cfg, assets: hashAssets(), mux: http.NewServeMux(), origin: http.NewCrossOriginProtection(),
		visitors: newVisitors(cfg), logins: newLogins(cfg.Clock),
		serving: newPlaces(maxServed, maxServed), streams: newPlaces(maxStreams, maxOwnStreams), unknown: newPlaces(maxStrangers, maxFromOne),
	}
	if !cfg.Encrypted { // all are nobody
		c.streams.each = maxStreams
	}
	c.pages = c.newPages()
	_, _ = rand.Read(c.key[:]) // it never fails
	for pattern, handle := range c.routes() {
		c.mux.HandleFunc(pattern, handle)
	}
	return c
}

// Close ends everything under way, and waits for the console's goroutines. Later requests are rejected. A nil
// Console ignores it.
func (c *Console) Close() {
	if c != nil {
		c.visitors.close()
	}
}

// Beside returns a handler that serves the console at /console/ and redirects the root there; rest serves the others.
func (c *Console) Beside(rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		path := q.URL.EscapedPath()
		switch {
		case (path == "/" || path == "/console") && isRead(q) && q.ContentLength == 0:
			http.Redirect(w, q, "/console/", http.StatusSeeOther)
		case strings.HasPrefix(path, "/console/"):
			c.ServeHTTP(w, q)
		default:
			rest.ServeHTTP(w, q)
		}
	})
}

func isRead(q *http.Request) bool { return q.Method == http.MethodGet || q.Method == http.MethodHead }

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	c.protect(w.Header())
	switch {
	case len(q.RequestURI) > maxURL:
		c.refuse(w, http.StatusRequestURITooLong, "the address is too long")
	case c.cfg.Encrypted && q.TLS == nil && isRead(q):
		http.Redirect(w, q, "https://"+q.Host+q.URL.RequestURI(), http.StatusSeeOther)
	//mutant: case false: //by TestConsoleOverTLSOnly of ./cell
	case c.cfg.Encrypted && q.TLS == nil:
		c.refuse(w, http.StatusForbidden, "the console is served over TLS only")
	//mutant: case false: //by TestConsoleOwnHost of ./cell
	case !c.cfg.Encrypted && !isOwnHost(q.Host):
		c.refuse(w, http.StatusMisdirectedRequest, "in a cell without certificates the console is for this machine alone: open it as http://localhost:PORT/")
	case isRead(q) && q.ContentLength != 0, q.ContentLength > maxBody:
		c.refuse(w, http.StatusRequestEntityTooLarge, "too much was sent")
	default:
		if !isRead(q) {
			//mutant: if err := c.origin.Check(q); err != nil && false { //by TestConsoleActs of ./cell
			if err := c.origin.Check(q); err != nil {
				c.refuse(w, http.StatusForbidden, "this form is not the console's own")
				return
			}
			form, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody)) // before the form takes a place: it may never arrive
			if err != nil || bytes.Count(form, []byte("&")) > maxFields {
				c.refuse(w, http.StatusRequestEntityTooLarge, "too much was sent, or too slowly")
				return
			}
			q.Body = io.NopCloser(bytes.NewReader(form))
		}
		leave, ok := c.enter(q)
		if !ok {
			w.Header().Set("Retry-After", "1")
			c.refuse(w, http.StatusServiceUnavailable, "the console is busy; try again")
			return
		}
		defer leave()
		c.mux.ServeHTTP(w, q)
	}
}

// enter takes a place for a request, if there is one. Strangers have their own, since they may read answers slowly.
func (c *Console) enter(q *http.Request) (leave func(), ok bool) {
	who, err := c.guest(q)
	switch {
	case err != nil:
		return c.unknown.enter(origin.Of(q.RemoteAddr))
	case q.URL.Path == eventsPath:
		return c.streams.enter(who.Principal)
	}
	return c.serving.enter("")
}

// protect limits what a browser does with an answer: it runs and shows only the console's own, and no site frames it.
func (c *Console) protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if c.cfg.Encrypted {
		h.Set("Permissions-Policy", "interest-cohort=()")
	}
}

// isOwnHost reports whether a request names this machine by a name that nobody else can assign.
func isOwnHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

func (c *Console) routes() map[string]http.HandlerFunc {
	list := map[string]http.HandlerFunc{
		"GET /console/{$}":           c.visit("glance", page{Title: "Overview", Nav: "glance", Every: 2}, c.glance),
		"GET /console/locks":         c.visit("locks", page{Title: "Locks", Nav: "locks", Every: 3}, c.locks),
		"GET /console/sessions":      c.visit("sessions", page{Title: "Sessions", Nav: "sessions", Every: 3}, c.sessions),
		"GET /console/sessions/{id}": c.visit("session", page{Title: "Session", Nav: "sessions", Every: 2}, c.oneSession),
		"GET /console/tree":          c.visit("tree", page{Title: "Tree", Nav: "tree"}, c.tree),
		"GET /console/explain":       c.visit("explain", page{Title: "Why does it wait?", Nav: "explain"}, c.explain),
		"GET /console/waits":         c.visit("waits", page{Title: "Waits", Nav: "waits", Every: 3}, waits),
		"GET /console/quotas":        c.visit("quotas", page{Title: "Quotas", Nav: "quotas"}, quotas),
		"GET /console/misuse":        c.visit("misuse", page{Title: "Misuse", Nav: "misuse", Every: 5}, c.misuse),
		"GET /console/takeovers":     c.visit("takeovers", page{Title: "Take-overs", Nav: "takeovers", Every: 2}, c.takeovers),
		"GET /console/events":        c.visit("events", page{Title: "Events", Nav: "events"}, c.events),
		"GET /console/static/{name}": c.serveAsset,
		"GET " + eventsPath:          c.stream,
		"GET /console/login":         c.loginPage,
		"POST /console/login":        c.login,
		"POST /console/logout":       c.logout,
	}
	for name, a := range c.acts() {
		list["GET /console/act/"+name] = c.visit("act", page{Title: "Act"}, actPage(a))
		list["POST /console/act/"+name] = c.perform(name, a)
	}
	return list
}

func (c *Console) loginPage(w http.ResponseWriter, q *http.Request) {
	if !c.cfg.Encrypted {
		http.Redirect(w, q, "/console/", http.StatusSeeOther)
		return
	}
	c.showLogin(w, q, http.StatusOK, "", q.URL.Query().Get("to"))
}

type loginForm struct{ Refusal, To, CertificateRefusal string }

func (c *Console) showLogin(w http.ResponseWriter, q *http.Request, code int, refusal, to string) {
	form := loginForm{Refusal: refusal, To: ownPath(to)}
	if len(q.TLS.PeerCertificates) > 0 {
		if _, _, err := c.cfg.Door.Identify(q.TLS); err != nil {
			form.CertificateRefusal = err.Error()
		}
	}
	c.render(w, code, "login", page{Title: "Log in", Content: form, CSRF: c.formToken("")})
}

func (c *Console) login(w http.ResponseWriter, q *http.Request) {
	if !c.cfg.Encrypted || q.ParseForm() != nil || !c.isFormToken("", q.PostForm.Get("csrf")) {
		c.refuse(w, http.StatusForbidden, notOurForm)
		return
	}
	principal, counts, err := c.verify(q)
	if err != nil {
		code := http.StatusUnauthorized
		if errors.Is(err, errManyLogins) {
			code = http.StatusServiceUnavailable
		}
		c.showLogin(w, q, code, err.Error(), q.PostForm.Get("to"))
		return
	}
	c.setCookie(w, c.logins.add(principal, counts), int(loginTime/time.Second))
	http.Redirect(w, q, ownPath(q.PostForm.Get("to")), http.StatusSeeOther)
}

var errManyLogins = errors.New("others are logging in; try again")

// verify returns the principal of a form's token. It holds its place only meanwhile, since strangers may read
// answers slowly.
func (c *Console) verify(q *http.Request) (principal string, counts func() bool, err error) {
	leave, ok := c.logins.verifying.enter("")
	if !ok {
		return "", nil, errManyLogins
	}
	defer leave()
	ctx, cancel := context.WithTimeout(q.Context(), verifyTime)
	defer cancel()
	return c.cfg.Door.Verify(ctx, strings.TrimSpace(q.PostForm.Get("token")), q.RemoteAddr)
}

func (c *Console) logout(w http.ResponseWriter, q *http.Request) {
	who, err := c.guest(q)
	if err != nil || q.ParseForm() != nil || !c.isFormToken(who.Principal, q.PostForm.Get("csrf")) {
		c.refuse(w, http.StatusForbidden, notOurForm)
		return
	}
	if cookie, err := q.Cookie(c.cookieName()); err == nil {
		c.logins.drop(cookie.Value)
	}
	c.setCookie(w, "", -1)
	http.Redirect(w, q, "/console/login", http.StatusSeeOther)
}

// ownPath returns a path of the console, safe for a redirect.
func ownPath(to string) string {
	if !strings.HasPrefix(to, "/console/") || strings.ContainsAny(to, "\\\r\n") || len(to) > maxURL {
		return "/console/"
	}
	return to
}

// setCookie has the browser keep a cookie for some seconds, or drop it.
func (c *Console) setCookie(w http.ResponseWriter, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: c.cookieName(), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode,
	})
}
