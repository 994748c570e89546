package console

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
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
	pages    map[string]*template.Template
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

// login is the result of a browser's token. The token itself is not kept.
type login struct {
	hash      [sha256.Size]byte // of its cookie
	principal string
	counts    func() bool
	ends      session.Instant
}

// logins are only in memory: the replica forgets them when it stops.
type logins struct {
	clock     session.Clock
	verifying *places

	mu  sync.Mutex // guards all
	all []login    // the oldest first; some have ended
}

func newLogins(clock session.Clock) *logins {
	return &logins{clock: clock, verifying: newPlaces(maxLoginNow, maxLoginNow)}
}

// add begins a login, and returns its cookie.
func (ls *logins) add(principal string, counts func() bool) (cookie string) {
	raw := make([]byte, loginBytes)
	_, _ = rand.Read(raw) // it never fails
	cookie = base64.RawURLEncoding.EncodeToString(raw)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now, own := ls.clock(), 0
	for i, l := range slices.Backward(ls.all) {
		if l.principal == principal {
			own++
		}
		if l.ends <= now || l.principal == principal && own >= maxOwn {
			ls.all = slices.Delete(ls.all, i, i+1)
		}
	}
	if len(ls.all) >= maxLogins {
		ls.all = slices.Delete(ls.all, 0, 1)
	}
	ls.all = append(ls.all, login{hash: sha256.Sum256([]byte(cookie)), principal: principal, counts: counts, ends: now.Add(loginTime)})
	return cookie
}

// find returns the login of a cookie, if it is valid. Its counts also checks the login itself, so that a stream
// of events ends with it.
func (ls *logins) find(cookie string) (login, bool) {
	hash := sha256.Sum256([]byte(cookie))
	l, ok := ls.byHash(hash)
	l.counts = func() bool {
		_, still := ls.byHash(hash)
		return still
	}
	return l, ok
}

func (ls *logins) byHash(hash [sha256.Size]byte) (l login, ok bool) {
	ls.mu.Lock()
	i := slices.IndexFunc(ls.all, func(l login) bool { return l.hash == hash })
	if i >= 0 {
		l = ls.all[i]
	}
	ls.mu.Unlock()
	return l, i >= 0 && l.ends > ls.clock() && l.counts()
}

func (ls *logins) drop(cookie string) {
	hash := sha256.Sum256([]byte(cookie))
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all = slices.DeleteFunc(ls.all, func(l login) bool { return l.hash == hash })
}

// cookieName contains the replica's ID: browsers send a cookie to all ports of a machine.
func (c *Console) cookieName() string { return "__Host-chubby-" + c.cfg.Replica }

// formToken returns the token that a principal's form must return. Other sites cannot read it from the console's pages.
func (c *Console) formToken(principal string) string { return c.sign("form", principal) }

// sign returns a code for some words that only this console can make.
func (c *Console) sign(words ...string) string {
	mac := hmac.New(sha256.New, c.key[:])
	for _, word := range words {
		fmt.Fprintf(mac, "%d:%s", len(word), word) // it never fails
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

func (c *Console) isFormToken(principal, token string) bool {
	//mutant: return true //by TestConsoleActs of ./cell
	return hmac.Equal([]byte(token), []byte(c.formToken(principal)))
}

const (
	maxVisitors = 64              // at a time, each with its own connections
	forgotten   = 5 * time.Minute // idle time after which a visitor is forgotten
)

// visitor is a caller who looks at the console. It has its own connections, so that the services know whose
// calls they are.
type visitor struct {
	cell   *client.Cell
	series series

	// visitors.mu guards these.
	used    session.Instant
	serving int // requests
}

// visitors are those with open connections. At the limit, the longest idle one makes room.
type visitors struct {
	cfg Config

	mu     sync.Mutex // guards the fields below, and those of visitors that say so
	byKey  map[string]*visitor
	closed bool
}

func newVisitors(cfg Config) *visitors { return &visitors{cfg: cfg, byKey: map[string]*visitor{}} }

// key distinguishes visitors: by principal and host.
func (g Guest) key() string {
	host, _, err := net.SplitHostPort(g.Address)
	if err != nil {
		host = g.Address
	}
	return g.Principal + "\x00" + host
}

// enter returns the visitor of a guest. The caller must call leave after the request.
func (vs *visitors) enter(ctx context.Context, who Guest) (*visitor, error) {
	key := who.key()
	vs.mu.Lock()
	now := vs.cfg.Clock()
	gone := vs.forget(now)
	v := vs.byKey[key]
	var err error
	switch {
	case vs.closed:
		err = api.Errorf(api.Unavailable, "the replica is stopping")
	case v == nil && len(vs.byKey) >= maxVisitors:
		err = api.Errorf(api.Unavailable, "%d others look at this console, the most that it serves; try again, or look at that of another replica", maxVisitors)
	case v == nil:
		if v, err = vs.newVisitor(ctx, who); err == nil {
			vs.byKey[key] = v
		}
	}
	if err == nil {
		v.used = now
		v.serving++
	}
	vs.mu.Unlock()
	for _, one := range gone {
		_ = one.cell.Close() // it never fails
	}
	return v, err
}

func (vs *visitors) leave(v *visitor) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v.serving--
	v.used = vs.cfg.Clock()
}

// forget removes idle visitors, and, if there is no room, the longest idle one. mu is held.
func (vs *visitors) forget(now session.Instant) (gone []*visitor) {
	var oldest string
	for key, v := range vs.byKey {
		switch {
		case v.serving > 0:
		case now.Sub(v.used) > forgotten:
			gone = append(gone, v)
			delete(vs.byKey, key)
		case oldest == "" || v.used < vs.byKey[oldest].used:
			oldest = key
		}
	}
	if len(vs.byKey) >= maxVisitors && oldest != "" {
		gone = append(gone, vs.byKey[oldest])
		delete(vs.byKey, oldest)
	}
	return gone
}

// newVisitor makes a guest's client, which connects later.
func (vs *visitors) newVisitor(ctx context.Context, who Guest) (*visitor, error) {
	v := &visitor{}
	var err error
	v.cell, err = client.Dial(context.WithoutCancel(ctx), client.Config{
		Cell: vs.cfg.Cell, Servers: vs.cfg.Door.Servers(), NoTLS: true, Clock: vs.cfg.Clock, DialTimeout: maxStatusTime, NoCache: true,
		Dialer: func(ctx context.Context, address string) (net.Conn, error) {
			return vs.cfg.Door.Dial(ctx, who, address)
		},
	})
	return v, err
}

func (vs *visitors) close() {
	vs.mu.Lock()
	vs.closed = true
	all := vs.byKey
	vs.byKey = nil
	vs.mu.Unlock()
	for _, v := range all {
		_ = v.cell.Close() // it never fails
	}
}

// isOperator reports whether the master considers a visitor an operator.
func isOperator(ctx context.Context, v *visitor) bool {
	o, err := v.cell.Overview(ctx, 1)
	return err == nil && o.Whole
}

// inSession calls do in a session of the visitor's, and ends it. Calls that name nodes, or change something, need one.
func inSession(ctx context.Context, v *visitor, do func(*client.Client) error) error {
	s, err := v.cell.NewSession(ctx, client.SessionConfig{NoCache: true})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close(ctx) }() // else it ends with its lease
	return do(s)
}

// guest identifies a caller, by an earlier login with a token or by the certificate of the connection.
func (c *Console) guest(q *http.Request) (Guest, error) {
	who := Guest{Address: q.RemoteAddr, Counts: func() bool { return true }}
	if !c.cfg.Encrypted {
		return who, nil
	}
	if cookie, err := q.Cookie(c.cookieName()); err == nil {
		if l, ok := c.logins.find(cookie.Value); ok {
			who.Principal, who.Counts, who.login = l.principal, l.counts, true
			return who, nil
		}
	}
	if len(q.TLS.PeerCertificates) == 0 {
		return who, api.Errorf(api.Unauthenticated, "nobody has logged in")
	}
	var err error
	who.Principal, who.Counts, err = c.cfg.Door.Identify(q.TLS)
	return who, err
}

const (
	loginTime   = time.Hour       // ends a login, even an active one
	maxLogins   = 256             // valid at a time; the oldest makes room
	maxOwn      = 8               // of these, of one principal
	verifyTime  = 5 * time.Second // for a token: this may read its issuer's keys
	loginBytes  = 24              // random bytes of a cookie
	maxLoginNow = 4               // tokens verified at a time
)

const notOurForm = "the form is not, or not any more, one of the console's: go back and load the page again"
