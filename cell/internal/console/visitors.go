package console

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

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
