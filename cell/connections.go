package cell

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of Config.MaxConnections and Config.MaxConnectionsPerAddress. A connection
// takes some 50 KB of memory, and a file descriptor. A process needs one for all of its
// sessions.
const (
	DefaultMaxConnections           = 20_000
	DefaultMaxConnectionsPerAddress = 2_000
)

// Of connections that are refused.
const (
	maxRefused = 64              // that are kept open, to answer their calls; others are closed at once
	refusedFor = 5 * time.Second // how long they are kept open at most
)

// maxIdle is how long a client's connection may be without a call before the replica
// closes it. A session always has a call under way, its parked KeepAlive; a client that
// calls again connects again.
const maxIdle = 5 * time.Minute

// connections counts those of the client port, in all and by where they come from, and
// refuses those above the bounds. The calls of one that is refused are answered with the
// reason, for a short time, since a client learns nothing from a connection that is
// just closed. It is safe for concurrent use.
type connections struct {
	all, each int // bounds
	log       *slog.Logger
	refusals  prometheus.Counter
	said      refusalLog

	mu      sync.Mutex // guards what follows
	open    int
	from    map[string]int
	refused int // that are kept open
}

func newConnections(all, each int, refusals prometheus.Counter, log *slog.Logger) *connections {
	return &connections{all: all, each: each, refusals: refusals, log: log, from: map[string]int{}}
}

// enter counts a connection from somewhere, or returns why it is refused.
func (c *connections) enter(from string) *api.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	const advice = "let sessions share a connection, or raise the limit; then try again"
	switch {
	case c.open >= c.all:
		return api.Errorf(api.Unavailable, "the replica has %d client connections, and at most %d are allowed (max-connections); "+advice, c.open, c.all)
	case c.from[from] >= c.each:
		return api.Errorf(api.Unavailable, "the replica has %d client connections from %s, and at most %d are allowed for one address (max-connections-per-address); "+advice, c.from[from], from, c.each)
	}
	c.open++
	c.from[from]++
	return nil
}

func (c *connections) leave(from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.from[from]--; c.from[from] == 0 {
		delete(c.from, from)
	}
}

// admit takes a connection in, perhaps as one that is refused, and reports whether it
// is to be served.
func (c *connections) admit(conn *heardConn) bool {
	from := originOf(conn.Conn.RemoteAddr())
	refusal := c.enter(from)
	if refusal == nil {
		conn.leave = func() { c.leave(from) }
		return true
	}
	c.refusals.Inc()
	if n, ok := c.said.next(); ok {
		c.log.Warn("refused a client's connection", "remote", from, "error", refusal, "refused", n)
	}
	if !c.keepRefused() {
		_ = conn.Conn.Close() // nobody else has it
		return false
	}
	conn.refusal, conn.leave = refusal, c.leaveRefused
	conn.expiry = time.AfterFunc(refusedFor, func() { _ = conn.Conn.Close() }) // its server notices, and closes it
	return true
}

// keepRefused counts a connection as refused and kept open, if there is room.
func (c *connections) keepRefused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused >= maxRefused {
		return false
	}
	c.refused++
	return true
}

func (c *connections) leaveRefused() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused--
}

// count returns how many connections are open, without those that are refused.
func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

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

// refusalLog lets one line in refusalEvery be logged, with how many refusals there were
// since the one before. Its zero value is ready, and it is safe for concurrent use.
type refusalLog struct {
	mu    sync.Mutex // guards what follows
	count int        // refusals since the last line
	quiet bool       // the last line was logged less than refusalEvery ago
}

// next counts a refusal, and reports whether to log it, and how many there were.
func (l *refusalLog) next() (refused int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if l.quiet {
		return 0, false
	}
	refused, l.count, l.quiet = l.count, 0, true
	time.AfterFunc(refusalEvery, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.quiet = false
	})
	return refused, true
}
