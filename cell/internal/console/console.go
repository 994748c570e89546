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

// Limits of the console.
const (
	maxServed     = 32               // requests at a time; others must retry
	maxStrangers  = 16               // requests of unknown callers, counted apart so that known callers are always served
	maxFromOne    = 4                // of these, from one address
	maxBody       = 32 << 10         // bytes of a form: a token has at most 16 KiB
	maxFields     = 32               // of a form: parsed, a field of one byte takes a hundred
	maxURL        = 4 << 10          // bytes: a path has at most 1 KiB, each escaped to at most three
	maxPageTime   = 10 * time.Second // for all requests of a page
	maxStatusTime = time.Second      // for the replicas' status: an absent one must not delay a page
	maxRows       = 100              // of a table of locks, sessions or nodes
)

// Guest is a caller as the replica knows it.
type Guest struct {
	Address   string      // of the browser
	Principal string      // empty if callers are not identified
	Counts    func() bool // whether Principal is still valid
	login     bool        // by a token, and may log out
}

// Door is what the console needs of its replica. Its methods are safe for concurrent use.
type Door interface {
	// Servers returns the client addresses of the cell's replicas, this replica's first.
	Servers() []string
	// Dial connects a guest to the services of the replica at one of these addresses, within seconds.
	Dial(ctx context.Context, who Guest, address string) (net.Conn, error)
	// Verify returns the principal of a token from a browser's address, and a function that reports whether it
	// is still valid; or why it is invalid.
	Verify(ctx context.Context, token, from string) (principal string, counts func() bool, err error)
	// Identify is Verify for the certificate of a connection.
	Identify(state *tls.ConnectionState) (principal string, counts func() bool, err error)
}

// Config configures a console.
type Config struct {
	Cell, Replica, Version string
	Door                   Door
	Logger                 *slog.Logger
	Clock                  session.Clock
	Wall                   func() int64 // seconds since 1970, for display

	Encrypted bool // callers must identify themselves, and only over TLS
	Tokens    bool // a token is accepted
}

// Console is the console of a replica.
type Console struct {
	cfg      Config
	pages    pages
	assets   string // a hash of the other files
	mux      *http.ServeMux
	visitors *visitors
	logins   *logins
	key      [32]byte // signs what forms must return
	origin   *http.CrossOriginProtection
	serving  *places // of requests
	streams  *places // of streams of events, by principal
	unknown  *places // of requests of unknown callers, by origin
}

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

// places are taken until there are no more, in all or for one. It is safe for concurrent use.
type places struct {
	most, each int

	mu    sync.Mutex // guards the fields below
	taken int
	by    map[string]int
}

func newPlaces(most, each int) *places { return &places{most: most, each: each, by: map[string]int{}} }

func (p *places) enter(one string) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.most || p.by[one] >= p.each {
		return nil, false
	}
	p.taken++
	p.by[one]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken--
		if p.by[one]--; p.by[one] == 0 {
			delete(p.by, one)
		}
	}, true
}

// refuse answers a request that reaches no page, and closes the connection.
func (c *Console) refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Connection", "close")
	http.Error(w, text, code)
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
