package wire

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/loglimit"
)

// Of connections that are refused.
const (
	MaxRefused = 64              // that are kept open, to answer their calls; others are closed at once
	RefusedFor = 5 * time.Second // how long they are kept open at most
)

// maxIdle is how long a client's connection may be without a call before the replica
// closes it. A session always has a call under way, its parked KeepAlive; a client that
// calls again connects again.
const maxIdle = 5 * time.Minute

// Connections counts those of the client port, in all and by where they come from, and
// refuses those above the bounds. The calls of one that is refused are answered with the
// reason, for a short time, since a client learns nothing from a connection that is
// just closed. It is safe for concurrent use.
//
// It counts what is held for their calls, too; see account.
type Connections struct {
	all, each      int // bounds
	limits         heldLimits
	log            *slog.Logger
	refusals, shed func() // are told of each
	said, saidShed loglimit.Refusals
	stumbled       loglimit.Refusals

	bytes   atomic.Int64 // that are held
	ending  atomic.Int64 // of those, what closed connections hold yet
	origins atomic.Int64 // len(from)

	mu        sync.Mutex // guards what follows
	open      int
	from      map[string]*source
	refused   int     // that are kept open
	strangers *source // of those
}

// NewConnections returns the connections of one port, of which all, and each address, have
// at most so many. refusals and shed are called for each that is refused, or closed because
// its calls hold too much.
func NewConnections(all, each int, refusals, shed func(), log *slog.Logger) *Connections {
	return &Connections{
		all: all, each: each, limits: heldLimits{conn: maxHeldConn, address: maxHeldAddress, all: maxHeld},
		refusals: refusals, shed: shed, log: log, from: map[string]*source{}, strangers: newSource("connections that are refused"),
	}
}

func newSource(name string) *source { return &source{name: name, accounts: map[*account]struct{}{}} }

// enter counts a connection from somewhere, or returns why it is refused.
func (c *Connections) enter(conn *heardConn) *api.Error {
	from := originOf(conn.Conn.RemoteAddr())
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.from[from]
	if o == nil {
		o = newSource(from)
	}
	const advice = "let sessions share a connection, or raise the limit; then try again"
	switch {
	case c.open >= c.all:
		return api.Errorf(api.Unavailable, "the replica has %d client connections, and at most %d are allowed (max-connections); "+advice, c.open, c.all)
	case o.open >= c.each:
		return api.Errorf(api.Unavailable, "the replica has %d client connections from %s, and at most %d are allowed for one address (max-connections-per-address); "+advice, o.open, from, c.each)
	}
	c.open++
	o.open++
	c.from[from] = o
	c.origins.Store(int64(len(c.from)))
	conn.account = newAccount(c, o, conn)
	o.accounts[conn.account] = struct{}{}
	return nil
}

func (c *Connections) leave(a *account) {
	a.close()
	c.mu.Lock()
	c.open--
	a.origin.open--
	delete(a.origin.accounts, a)
	c.mu.Unlock()
	c.forget(a.origin)
}

// forget drops a source that has no connections left and holds nothing.
func (c *Connections) forget(o *source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.open == 0 && o.bytes.Load() == 0 && c.from[o.name] == o {
		delete(c.from, o.name)
		c.origins.Store(int64(len(c.from)))
	}
}

// admit takes a connection in, perhaps as one that is refused, and reports whether it
// is to be served.
func (c *Connections) admit(conn *heardConn) bool {
	refusal := c.enter(conn)
	if refusal == nil {
		conn.leave = func() { c.leave(conn.account) }
		return true
	}
	c.refusals()
	if n, ok := c.said.Next(); ok {
		c.log.Warn("refused a client's connection", "remote", originOf(conn.Conn.RemoteAddr()), "error", refusal, "refused", n)
	}
	if !c.keepRefused(conn) {
		_ = conn.Conn.Close() // nobody else has it
		return false
	}
	conn.refusal, conn.leave = refusal, func() { c.leaveRefused(conn.account) }
	conn.expiry = time.AfterFunc(RefusedFor, func() { _ = conn.Conn.Close() }) // its server notices, and closes it
	return true
}

// stumble tells of an error of the listener, unless it is closed: gRPC goes on in silence,
// and a port that accepts nothing for long looks well from within.
func (c *Connections) stumble(err error) {
	if errors.Is(err, net.ErrClosed) {
		return
	}
	if n, ok := c.stumbled.Next(); ok {
		c.log.Error("cannot accept on the client port; trying again", "error", err, "failed", n)
	}
}

// keepRefused counts a connection as refused and kept open, if there is room.
func (c *Connections) keepRefused(conn *heardConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused >= MaxRefused {
		return false
	}
	c.refused++
	conn.account = newAccount(c, c.strangers, conn)
	c.strangers.accounts[conn.account] = struct{}{}
	return true
}

func (c *Connections) leaveRefused(a *account) {
	a.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused--
	delete(c.strangers.accounts, a)
}

// Count returns how many connections are open, without those that are refused.
func (c *Connections) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// Refused returns how many connections are refused and kept open.
func (c *Connections) Refused() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// Held returns how many bytes are held for calls.
func (c *Connections) Held() int64 { return c.bytes.Load() }

// originOf returns what connections from one place have in common: the IP address, of
// IPv6 the network of 64 bits, which one machine may have to itself.
func originOf(address net.Addr) string {
	text := address.String()
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		host, _, err := net.SplitHostPort(text)
		if err != nil {
			return text
		}
		return host
	}
	ip := at.Addr().Unmap()
	if ip.Is4() || ip.IsLoopback() {
		return ip.String()
	}
	network, err := ip.Prefix(64)
	if err != nil {
		return ip.String()
	}
	return network.String()
}
