package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/chubbylock/chubby/api"
)

//go:embed templates
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// page is a page around its content.
type page struct {
	Title   string
	Nav     string // its entry in the navigation
	Content any
	Problem string // why there is no content
	CSRF    string // the token that its forms must return
	Done    string // the act just done
	Every   int    // seconds between updates; 0: none

	Operator bool // the visitor is one; only on pages that offer acts

	// Filled in by render and visit.
	Cell, Replica, Version string
	Principal              string
	Known                  bool // callers log in here, and this one has
	CanLogOut              bool
	URL                    string // of this page
}

// newPages parses the templates. They are part of the program, and the tests render each, so an error panics.
func (c *Console) newPages() map[string]*template.Template {
	all := map[string]*template.Template{}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		if base := strings.TrimSuffix(path.Base(name), ".html"); base != "layout" && base != "parts" {
			all[base] = template.Must(template.New(base).Funcs(c.functions()).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", name))
		}
	}
	return all
}

// render writes a page, after it is complete.
func (c *Console) render(w http.ResponseWriter, code int, name string, p page) {
	p.Cell, p.Replica, p.Version = c.cfg.Cell, c.cfg.Replica, c.cfg.Version
	var text bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&text, "layout", p); err != nil {
		c.cfg.Logger.Error("a page of the console cannot be made: this is a bug", "event", "bug", "page", name, "error", err)
		c.refuse(w, http.StatusInternalServerError, "the page cannot be made: this is a bug; the log of the replica says more")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(text.Bytes()) // the browser is gone
}

// show fills in a page for a visitor, or returns why it cannot.
type show func(ctx context.Context, v *visitor, q *http.Request, p *page) error

// visit serves a page to known callers, and has others log in.
func (c *Console) visit(name string, empty page, fill show) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		who, err := c.guest(q)
		if err != nil {
			c.turnAway(w, q)
			return
		}
		ctx, cancel := context.WithTimeout(q.Context(), maxPageTime)
		defer cancel()
		v, err := c.visitors.enter(ctx, who)
		if err != nil {
			w.Header().Set("Retry-After", "5")
			c.refuse(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		defer c.visitors.leave(v)
		p, code := empty, http.StatusOK
		if err = fill(ctx, v, q, &p); err != nil {
			if isUpdate(q) {
				c.postpone(w, err)
				return
			}
			p.Problem, code = explainProblem(err), statusOf(err)
		}
		p.URL, p.Done = withValue(q.URL, "done", ""), c.done(who.Principal, q.URL.Query().Get("done"))
		c.renderFor(w, code, name, p, who)
	}
}

// renderFor is render for a known caller.
func (c *Console) renderFor(w http.ResponseWriter, code int, name string, p page, who Guest) {
	p.Principal, p.Known, p.CSRF, p.CanLogOut = who.Principal, c.cfg.Encrypted, c.formToken(who.Principal), who.login
	c.render(w, code, name, p)
}

// withValue returns an address with another value, without that of doneMark.
func withValue(u *url.URL, name, value string) string {
	values := u.Query()
	values.Del("done")
	if values.Del(name); value != "" {
		values.Set(name, value)
	}
	if len(values) == 0 {
		return u.Path
	}
	return u.Path + "?" + values.Encode()
}

// turnAway redirects an unknown caller to the login.
func (c *Console) turnAway(w http.ResponseWriter, q *http.Request) {
	if isUpdate(q) {
		w.Header().Set("HX-Refresh", "true")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	login := "/console/login?" + url.Values{"to": {q.URL.RequestURI()}}.Encode()
	if len(login) > maxURL { // double escaping makes it long
		login = "/console/login"
	}
	http.Redirect(w, q, login, http.StatusSeeOther)
}

// isUpdate reports whether a page asks for its newest state.
func isUpdate(q *http.Request) bool { return q.Header.Get("HX-Request") == "true" }

// postpone answers an update that failed: the page stays, and shows why.
func (c *Console) postpone(w http.ResponseWriter, err error) {
	w.Header().Set("X-Console-Problem", url.PathEscape(explainProblem(err)))
	w.WriteHeader(http.StatusNoContent)
}

func explainProblem(err error) string {
	var e *api.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, api.DeadlineExceeded):
		return "The cell did not answer in time. It may be electing a master, which takes about a second. (" + err.Error() + ")"
	case errors.As(err, &e) && e.Code == api.Unavailable:
		return "The cell cannot answer now. " + err.Error()
	}
	return err.Error()
}

func statusOf(err error) int {
	switch api.CodeOf(err) {
	case api.PermissionDenied, api.Unauthenticated:
		return http.StatusForbidden
	case api.NotFound, api.SessionExpired:
		return http.StatusNotFound
	case api.InvalidArgument, api.InvalidPath, api.WrongCell:
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// asset returns the address of another file of pages. It contains a hash of all of them, so its contents never change.
func (c *Console) asset(name string) string { return "/console/static/" + name + "?v=" + c.assets }

func hashAssets() string {
	sum := sha256.New()
	for _, name := range []string{"console.css", "console.js", "htmx.min.js", "icon.svg", "idiomorph-ext.min.js"} {
		data, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			panic(err) // a fault of the program, as in newPages
		}
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

func (c *Console) serveAsset(w http.ResponseWriter, q *http.Request) {
	name := q.PathValue("name")
	data, err := staticFiles.ReadFile("static/" + name)
	if err != nil {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	if q.URL.Query().Get("v") == c.assets {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(data) // the browser is gone
}

func (c *Console) functions() template.FuncMap {
	return template.FuncMap{
		"asset": c.asset, "dur": roughly, "count": grouped, "bytes": byteSize, "when": when, "short": shorten, "url": pageURL, "base": path.Base, "table": beginTable,
		"state": lockState, "waiting": waiting, "longest": longestWait, "howOften": howOften, "aSecond": aSecond, "latest": reversed[api.Holding],
		"add":  func(a, b int) int { return a + b },
		"list": func(values ...any) []any { return values },
	}
}
