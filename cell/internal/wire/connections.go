package wire

import (
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/loglimit"
	"github.com/chubbylock/chubby/cell/internal/origin"
	"github.com/chubbylock/chubby/session"
)

// Bounds are the limits of one port.
type Bounds struct {
	Connections, PerAddress int   // open at a time
	Memory                  int64 // bytes held for calls; see heldLimits
	Rates                   Rates
}

// Told are called for each refused connection, each one closed because its calls hold too much, and each call
// refused because of its rate.
type Told struct{ Refused, Shed, Late func() }

// Connections counts the connections of the client port, in all and by origin, and refuses those above the
// limits. For a short time it answers their calls with the reason, since a mere close tells a client nothing.
// It also counts what their calls hold; see account. It is safe for concurrent use.
type Connections struct {
	bounds             Bounds
	limits             heldLimits // from bounds.Memory
	told               Told
	log                *slog.Logger
	handshakes         chan struct{} // an element for each that is computed; see opening
	accepts            bucket
	said, saidShed     loglimit.Refusals
	saidLate, stumbled loglimit.Refusals

	bytes   atomic.Int64 // held for calls
	ending  atomic.Int64 // of these, held by closed connections
	origins atomic.Int64 // len(from)

	mu            sync.Mutex // guards the fields below
	open          int
	from, callers parties // origins and principals
	refused       int     // kept open
	strangers     *party  // their origin
}

// NewConnections returns the connections of one port.
func NewConnections(bounds Bounds, told Told, log *slog.Logger) *Connections {
	return &Connections{
		bounds: bounds, limits: limitsOf(bounds.Memory), told: told, log: log, handshakes: make(chan struct{}, handshakesAtATime()),
		from: newParties(), callers: newParties(), strangers: newParty("connections that are refused"),
	}
}

// Listener counts its connections, which record when something last arrived.
type Listener struct {
	net.Listener
	Clock       session.Clock
	Connections *Connections

	Certificates Certificates // nil if connections are not encrypted, and clients not identified
	Tokens       Tokens       // nil if only certificates identify clients
}

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			l.Connections.stumble(err)
			return nil, AcceptError{Err: err}
		}
		l.Connections.smooth(l.Clock())
		if one := hear(conn, l); l.Connections.admit(one) {
			return one, nil
		}
	}
}

func hear(conn net.Conn, l Listener) *heardConn {
	c := &heardConn{Conn: conn, clock: l.Clock, certificates: l.Certificates, tokens: l.Tokens, gone: make(chan struct{})}
	if l.Certificates == nil {
		c.stream = conn
	}
	if l.Tokens != nil {
		c.asking = make(chan struct{}, 1)
	}
	return c
}

// Limits of refused connections.
const (
	MaxRefused = 64              // kept open to answer their calls, at a time and a second; others are closed at once
	RefusedFor = 5 * time.Second // the longest time they are kept open
)

// maxSilent is how many connections of one address may have sent nothing but a handshake. Honest clients send
// immediately. Handshakes take turns (see heardConn.begin), so few wait even if all clients of an address reconnect.
const maxSilent = 100

// maxIdle is how long a client's connection may have no call before the replica closes it. A session always has
// one, its parked KeepAlive. Other clients reconnect.
const maxIdle = 5 * time.Minute

// enter counts a connection, or returns why it is refused.
func (c *Connections) enter(conn *heardConn) *api.Error {
	from, now := origin.Of(conn.Conn.RemoteAddr().String()), conn.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.from.find(from, now)
	const advice = "let sessions share a connection, or raise the limit; then try again"
	switch {
	case c.open >= c.bounds.Connections:
		return api.Errorf(api.Unavailable, "the replica has %d client connections, and at most %d are allowed (max-connections); "+advice, c.open, c.bounds.Connections)
	case o.open >= c.bounds.PerAddress:
		return api.Errorf(api.Unavailable, "the replica has %d client connections from %s, and at most %d are allowed for one address (max-connections-per-address); "+advice, o.open, from, c.bounds.PerAddress)
	case o.silent.Load() >= maxSilent:
		return api.Errorf(api.Unavailable, "%d connections from %s have sent nothing yet, and at most %d are allowed; "+advice, o.silent.Load(), from, maxSilent)
	case !o.opens.take(now, c.bounds.Rates.HandshakesPerAddress, 0):
		return api.Errorf(api.Unavailable, "more than %d connections a second come from %s (max-handshakes-per-address); "+advice, c.bounds.Rates.HandshakesPerAddress, from)
	}
	c.from.enter(o)
	c.open++
	o.open++
	c.origins.Store(int64(len(c.from.here)))
	conn.account = newAccount(c, o, conn)
	o.accounts[conn.account] = struct{}{}
	return nil
}

// leave counts a connection that is closed.
func (c *Connections) leave(conn *heardConn) {
	a := conn.account
	a.close()
	c.mu.Lock()
	delete(a.origin.accounts, a)
	if conn.refusal != nil {
		c.refused--
		c.mu.Unlock()
		return
	}
	c.open--
	a.origin.open--
	c.parts(conn)
	c.mu.Unlock()
	c.forget(a.origin, conn.clock())
}

// forget drops an origin without connections that holds nothing, once its buckets are full.
func (c *Connections) forget(o *party, now session.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.open == 0 && o.bytes.Load() == 0 && c.from.here[o.name] == o {
		c.from.leave(o, now)
		c.origins.Store(int64(len(c.from.here)))
	}
}

// admit accepts a connection, perhaps as refused, and reports whether to serve it.
func (c *Connections) admit(conn *heardConn) bool {
	refusal := c.enter(conn)
	if refusal == nil {
		return true
	}
	c.told.Refused()
	if n, ok := c.said.Next(); ok {
		c.log.Warn("refused a client's connection", "event", "connection_refused", "from", origin.Of(conn.Conn.RemoteAddr().String()), "error", refusal, "count", n)
	}
	if !c.keepRefused(conn) {
		_ = conn.Conn.Close() // nothing else uses it
		return false
	}
	conn.refusal = refusal
	//mutant: conn.expiry = time.AfterFunc(RefusedFor, func() {}) //by TestRefusedConnectionsAreClosed of ./cell
	conn.expiry = time.AfterFunc(RefusedFor, func() { _ = conn.Conn.Close() }) // its server notices, and closes it
	return true
}

// keepRefused counts a connection as refused and kept open, if there is room. Its answer may cost a handshake,
// so there is a limit a second, too.
func (c *Connections) keepRefused(conn *heardConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused >= MaxRefused || !c.strangers.opens.take(conn.clock(), MaxRefused, 0) {
		return false
	}
	c.refused++
	conn.account = newAccount(c, c.strangers, conn)
	c.strangers.accounts[conn.account] = struct{}{}
	return true
}

// Count returns how many connections are open, without refused ones.
func (c *Connections) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// Refused returns how many refused connections are open.
func (c *Connections) Refused() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// Held returns how many bytes are held for calls.
func (c *Connections) Held() int64 { return c.bytes.Load() }

// full returns an error if an origin's calls hold too much, or more than their share while all hold too much.
func (c *Connections) full(o *party) error {
	held, all := o.bytes.Load(), c.bytes.Load()
	switch {
	case held > c.limits.address:
		return api.Errorf(api.Unavailable, "the calls from %s hold %d bytes of the replica's memory, and at most %d are allowed for one address; wait for some answers, then try again", o.name, held, c.limits.address)
	case all > c.limits.all && held > c.limits.all/max(1, c.origins.Load()):
		return api.Errorf(api.Unavailable, "the calls of clients hold %d bytes of the replica's memory, at most %d are allowed, and those from %s have more than their share; try again", all, c.limits.all, o.name)
	}
	return nil
}

// lasting returns how many bytes closing connections could free.
func (p *party) lasting() int64 { return p.bytes.Load() - p.ending.Load() }

// relieve closes connections if too much is held: the grown one if it holds too much itself, or the heaviest
// one of the address that holds most. It ignores what closed connections still hold; else it would close one
// after the other until calls being served end.
func (c *Connections) relieve(grown *account, bytes int64) {
	over := func() (*party, bool) {
		if grown.origin.lasting() > overflow*c.limits.address {
			return grown.origin, true
		}
		return nil, c.bytes.Load()-c.ending.Load() > overflow*c.limits.all
	}
	_, yes := over()
	if bytes <= overflow*c.limits.conn && !yes {
		return
	}
	var victims []*account
	c.mu.Lock()
	if bytes > overflow*c.limits.conn {
		victims = append(victims, grown)
		c.drop(grown)
	}
	for {
		from, yes := over()
		if !yes {
			break
		}
		if from == nil {
			for _, o := range c.from.here {
				if from == nil || o.lasting() > from.lasting() {
					from = o
				}
			}
		}
		heaviest := from.heaviest()
		if heaviest == nil {
			break // refused connections hold it
		}
		victims = append(victims, heaviest)
		c.drop(heaviest)
	}
	c.mu.Unlock()
	for _, a := range victims {
		c.told.Shed()
		if n, ok := c.saidShed.Next(); ok {
			from, _ := a.conn.from()
			c.log.Warn("closed a client's connection: its calls held too much memory", "event", "connection_closed", "from", from, "count", n)
		}
		_ = a.conn.Close() // its server notices
	}
}

// drop ends the calls of a connection before it is closed. c.mu is held.
func (c *Connections) drop(a *account) {
	delete(a.origin.accounts, a)
	a.close()
}

// heaviest returns the account that holds most, or nil. Connections.mu is held.
func (p *party) heaviest() *account {
	var heaviest *account
	holds := int64(0)
	if p == nil {
		return nil
	}
	for a := range p.accounts {
		if n := a.held(); n > holds {
			heaviest, holds = a, n
		}
	}
	return heaviest
}

// knows counts the calls of a connection as those of a principal.
func (c *Connections) knows(conn *heardConn, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.refusal != nil || conn.closed.Load() || conn.caller.Load() != nil {
		return
	}
	p := c.callers.find(name, conn.clock())
	c.callers.enter(p)
	p.open++
	conn.caller.Store(p)
}

// parts counts a closed connection. c.mu is held.
func (c *Connections) parts(conn *heardConn) {
	p := conn.caller.Load()
	if p == nil {
		return
	}
	if p.open--; p.open == 0 {
		c.callers.leave(p, conn.clock())
	}
}

// smooth waits until the next connection is due. The accepting goroutine calls it for each connection.
func (c *Connections) smooth(now session.Instant) {
	refill, _ := c.accepts.spend(now, 1, acceptsPerProcessor*runtime.GOMAXPROCS(0), time.Hour)
	if refill > acceptBurst {
		<-time.After(refill - acceptBurst) // one token
	}
}

// Limits of accepted connections: a second for each processor, and how long they may come faster. The others
// wait in the system's queue; else many addresses could take the processors from calls.
const (
	acceptsPerProcessor = 500
	acceptBurst         = 20 * time.Millisecond
)

// stumble logs an error of the listener, unless it is closed. gRPC retries silently, and a port that accepts
// nothing looks healthy from within.
func (c *Connections) stumble(err error) {
	if errors.Is(err, net.ErrClosed) {
		return
	}
	if n, ok := c.stumbled.Next(); ok {
		c.log.Error("cannot accept on the client port; trying again", "error", err, "count", n)
	}
}

// Recheck closes the connections whose credentials are no longer valid, and returns their number. It runs every
// few seconds, so it finds a connection identified during a change the next time.
func (c *Connections) Recheck() int {
	var open []*heardConn
	c.mu.Lock()
	for _, o := range c.from.here {
		for a := range o.accounts {
			open = append(open, a.conn)
		}
	}
	c.mu.Unlock()
	closed := 0
	for _, conn := range open {
		if who := conn.identity.Load(); who != nil && who.refusal == nil && !who.counts() {
			closed++
			// Calls that have arrived are no longer served; those being served go on as this principal's.
			gone := *who
			gone.refusal = unauthenticated("what was shown does not count any more", conn.tokens)
			conn.identity.Store(&gone)
			_ = conn.Conn.Close() // its server notices, and closes it
		}
	}
	return closed
}

// AcceptError is an error of a listener after which its server retries, unless the listener is closed.
// accept(2) also fails when memory is short or the pending connection broke. net calls few of these errors
// temporary, and a server that ended with one would leave its master unreachable.
type AcceptError struct{ Err error }

// Error implements error.
func (e AcceptError) Error() string { return e.Err.Error() }

var _ net.Error = AcceptError{}

// Temporary reports whether to retry.
func (e AcceptError) Temporary() bool { return !errors.Is(e.Err, net.ErrClosed) }

// Timeout implements net.Error.
func (AcceptError) Timeout() bool { return false }

// Unwrap returns the listener's error.
func (e AcceptError) Unwrap() error { return e.Err }
