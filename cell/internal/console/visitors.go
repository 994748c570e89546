package console

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

const (
	maxVisitors = 64              // who look at the console at a time, each with connections of his own
	forgotten   = 5 * time.Minute // after which a visitor who has asked for nothing is
	askAgain    = 10 * time.Second
)

// visitor is somebody who looks at the console. His connections are his own: the services know whose calls they are.
type visitor struct {
	principal string
	address   net.Addr
	counts    atomic.Pointer[func() bool] // of what he has shown last
	cell      *client.Cell
	series    series

	// What follows is guarded by visitors.mu.
	used    session.Instant
	serving int // requests
	streams int // of those, streams of events

	operator  atomic.Bool  // whether the master said so, at
	operatorT atomic.Int64 // a session.Instant; 0 if it has not been asked
}

// who is the visitor, as the replica has to know him.
func (v *visitor) who() Guest {
	return Guest{Address: v.address, Principal: v.principal, Counts: func() bool { return (*v.counts.Load())() }}
}

// visitors are those whose connections are kept. They are bounded: he who was away for longest makes room.
type visitors struct {
	cfg Config

	mu     sync.Mutex // guards what follows, and fields of visitors that say so
	byKey  map[string]*visitor
	closed bool
}

func newVisitors(cfg Config) *visitors { return &visitors{cfg: cfg, byKey: map[string]*visitor{}} }

// key is what tells visitors apart: who they are, and from where they come.
func (g Guest) key() string {
	host, _, err := net.SplitHostPort(g.Address.String())
	if err != nil {
		host = g.Address.String()
	}
	return g.Principal + "\x00" + host
}

// enter returns the visitor for a guest; leave is to be called when his request has been served.
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
		v.counts.Store(&who.Counts)
		v.used = now
		v.serving++
	}
	vs.mu.Unlock()
	for _, one := range gone {
		_ = one.cell.Close() // it never fails
	}
	return v, err
}

// beginStream notes that a visitor begins to follow events, and reports whether he may; if so, endStream is to be called.
func (vs *visitors) beginStream(v *visitor) bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	own := 0 // from wherever
	for _, one := range vs.byKey {
		if one.principal == v.principal {
			own += one.streams
		}
	}
	if vs.cfg.Encrypted && own >= maxOwnStreams {
		return false
	}
	v.streams++
	return true
}

func (vs *visitors) endStream(v *visitor) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v.streams--
}

func (vs *visitors) leave(v *visitor) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v.serving--
	v.used = vs.cfg.Clock()
}

// forget takes out visitors who have not asked for anything for a while, or, if there is no room, for longest. mu is held.
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

// newVisitor makes the connections of a guest. None is opened yet.
func (vs *visitors) newVisitor(ctx context.Context, who Guest) (*visitor, error) {
	v := &visitor{principal: who.Principal, address: who.Address}
	var err error
	v.cell, err = client.Dial(context.WithoutCancel(ctx), client.Config{
		Cell: vs.cfg.Cell, Servers: vs.cfg.Door.Servers(), NoTLS: true, Clock: vs.cfg.Clock, DialTimeout: maxStatusTime, NoCache: true,
		Dialer: func(ctx context.Context, address string) (net.Conn, error) {
			return vs.cfg.Door.Dial(ctx, v.who(), address)
		},
	})
	return v, err
}

// close ends the connections of all.
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

// isOperator reports whether the master takes a visitor for an operator. It asks the master if the last answer is older than askAgain.
func (c *Console) isOperator(ctx context.Context, v *visitor) bool {
	now := c.cfg.Clock()
	if last := session.Instant(v.operatorT.Load()); last != 0 && now.Sub(last) < askAgain {
		return v.operator.Load()
	}
	o, err := v.cell.Overview(ctx, 1)
	if err == nil {
		c.sawOverview(v, o)
	}
	return err == nil && o.Whole
}

// sawOverview notes what an overview says of its viewer.
func (c *Console) sawOverview(v *visitor, o client.Overview) {
	v.operator.Store(o.Whole)
	v.operatorT.Store(int64(max(c.cfg.Clock(), 1)))
}

// inSession does something in a session of a visitor's, which ends with it. What names nodes, or changes something, takes one.
func inSession(ctx context.Context, v *visitor, do func(*client.Client) error) error {
	s, err := v.cell.NewSession(ctx, client.SessionConfig{NoCache: true})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close(ctx) }() // it ends with its lease otherwise
	return do(s)
}

// guest finds out who asks. It is by what he shows now (a certificate) or has shown (a token, at the login).
func (c *Console) guest(q *http.Request) (Guest, error) {
	who := Guest{Address: remoteAddress(q.RemoteAddr), Counts: func() bool { return true }}
	if !c.cfg.Encrypted {
		return who, nil
	}
	if cookie, err := q.Cookie(c.cookieName()); err == nil {
		if l, ok := c.logins.find(cookie.Value); ok {
			who.Principal, who.Counts = l.principal, l.counts
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

// remoteAddress is where a browser is.
type remoteAddress string

// Network implements net.Addr.
func (remoteAddress) Network() string { return "tcp" }

// String implements net.Addr.
func (a remoteAddress) String() string { return string(a) }
