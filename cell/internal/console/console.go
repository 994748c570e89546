package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/cell/internal/origin"
	"github.com/chubbylock/chubby/session"
)

// Bounds of the console.
const (
	maxServed     = 32               // requests that are served at a time; others are told to try again
	maxStrangers  = 16               // requests of those whom nobody knows, which are apart; so one who is known is served whatever they do
	maxFromOne    = 4                // of these, from one address
	maxBody       = 32 << 10         // bytes of a form: a token has at most 16 KiB
	maxFields     = 32               // of a form: parsed, one of a byte takes a hundred
	maxURL        = 4 << 10          // bytes: a path has at most 1 KiB, and each may be three when escaped
	maxPageTime   = 10 * time.Second // for everything that a page has to ask
	maxStatusTime = time.Second      // for what replicas say of themselves: one that is gone must not hold up a page
	maxRows       = 100              // of a table of locks, sessions or nodes
)

// Guest is somebody who looks at the console, as the replica has to know him.
type Guest struct {
	Address   net.Addr    // of his browser
	Principal string      // empty where nobody is asked who he is
	Counts    func() bool // whether Principal counts still
}

// Door is what the console asks of its replica. Its methods are called from any goroutine.
type Door interface {
	// Servers are the client addresses of the replicas of the cell, that of this one first.
	Servers() []string
	// Dial connects to the services of the replica at one of these addresses, for a guest. It returns within some seconds.
	Dial(ctx context.Context, who Guest, address string) (net.Conn, error)
	// Verify returns whom a token names, which a browser at an address has sent, and a function that reports whether it counts
	// still; or why it does not count.
	Verify(ctx context.Context, token, from string) (principal string, counts func() bool, err error)
	// Identify is Verify for the certificate of a connection.
	Identify(state *tls.ConnectionState) (principal string, counts func() bool, err error)
}

// Config is what a console is told.
type Config struct {
	Cell, Replica, Version string
	Door                   Door
	Logger                 *slog.Logger
	Clock                  session.Clock
	Wall                   func() int64 // the seconds since 1970, for display

	Encrypted bool // people have to say who they are, and the console is served over TLS only
	Tokens    bool // they may show a token
}

// Console is the console of a replica.
type Console struct {
	cfg      Config
	pages    pages
	mux      *http.ServeMux
	visitors *visitors
	logins   *logins
	key      [32]byte // signs what forms have to bring back
	origin   *http.CrossOriginProtection
	serving  chan struct{} // has an element for each request that is served,
	streams  chan struct{} // or each stream of events
	unknown  strangers     // those of strangers
}

// New returns a console.
func New(cfg Config) *Console {
	files := newAssets()
	c := &Console{
		cfg: cfg, pages: newPages(files), mux: http.NewServeMux(), origin: http.NewCrossOriginProtection(),
		visitors: newVisitors(cfg), logins: newLogins(cfg.Clock), serving: make(chan struct{}, maxServed), streams: make(chan struct{}, maxStreams),
	}
	_, _ = rand.Read(c.key[:]) // it never fails
	c.mux.Handle("GET /console/static/{name}", files)
	for pattern, handle := range c.routes() {
		c.mux.HandleFunc(pattern, handle)
	}
	return c
}

// routes are all pages and forms of the console.
func (c *Console) routes() map[string]http.HandlerFunc {
	list := map[string]http.HandlerFunc{
		"GET /console/{$}":           c.visit(c.glance),
		"GET /console/locks":         c.visit(c.locks),
		"GET /console/sessions":      c.visit(c.sessions),
		"GET /console/sessions/{id}": c.visit(c.oneSession),
		"GET /console/tree":          c.visit(c.tree),
		"GET /console/explain":       c.visit(c.explain),
		"GET /console/waits":         c.visit(c.waits),
		"GET /console/quotas":        c.visit(c.quotas),
		"GET /console/misuse":        c.visit(c.misuse),
		"GET /console/takeovers":     c.visit(c.takeovers),
		"GET /console/events":        c.visit(c.events),
		"GET " + eventsPath:          c.stream,
		"GET /console/login":         c.loginPage,
		"POST /console/login":        c.login,
		"POST /console/logout":       c.logout,
	}
	for name, a := range c.acts() {
		list["GET /console/act/"+name] = c.visit(c.actPage(a))
		list["POST /console/act/"+name] = c.perform(name, a)
	}
	return list
}

// Close ends what the console has under way, and returns when none of its goroutines runs any more. Requests that come
// later are refused. Of a nil Console it does nothing.
func (c *Console) Close() {
	if c != nil {
		c.visitors.close()
	}
}

// Beside returns a handler that serves the console at /console/, and has the root lead there; rest serves everything else.
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
			form, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody)) // before it takes a place: it may never come
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

// enter takes a place for a request, if there is one. Those of strangers are apart: they may read what they have asked for as slowly as
// they like.
func (c *Console) enter(q *http.Request) (leave func(), ok bool) {
	slots := c.serving
	if _, err := c.guest(q); err != nil {
		return c.unknown.enter(q.RemoteAddr)
	} else if q.URL.Path == eventsPath {
		slots = c.streams
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, true
	default:
		return nil, false
	}
}

// strangers counts the requests of those whom nobody knows. Its zero value is ready. It is safe for concurrent use.
type strangers struct {
	mu   sync.Mutex // guards what follows
	all  int
	from map[string]int // by origin
}

func (s *strangers) enter(address string) (leave func(), ok bool) {
	place := origin.Of(address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStrangers || s.from[place] >= maxFromOne {
		return nil, false
	}
	if s.from == nil {
		s.from = map[string]int{}
	}
	s.all++
	s.from[place]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.from[place]--; s.from[place] == 0 {
			delete(s.from, place)
		}
	}, true
}

// refuse answers what never comes to a page, and ends the connection.
func (c *Console) refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Connection", "close")
	http.Error(w, text, code)
}

// protect says what a browser may do with an answer: it runs and shows what comes from the console alone, and nobody frames it.
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

// isOwnHost reports whether a request was made to this machine by a name that nobody else can give to it.
func isOwnHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}
