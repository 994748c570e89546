package wire

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/loglimit"
	"github.com/chubbylock/chubby/cell/internal/origin"
	"github.com/chubbylock/chubby/session"
)

// Of connections that are refused.
const (
	MaxRefused = 64              // that are kept open at a time, and of a second, to answer their calls; others are closed at once
	RefusedFor = 5 * time.Second // how long they are kept open at most
)

// maxSilent is how many connections from one address may have sent nothing yet, beyond a handshake. An honest client sends as soon
// as its connection stands; so many at a time are at hand for it to connect anew even if all clients of an address do at once, since
// handshakes take turns. See heardConn.begin.
const maxSilent = 100

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
	bounds             Bounds
	limits             heldLimits // made of bounds.Memory
	told               Told
	log                *slog.Logger
	handshakes         chan struct{} // an element for each that is computed; see opening
	accepts            bucket
	said, saidShed     loglimit.Refusals
	saidLate, stumbled loglimit.Refusals

	bytes   atomic.Int64 // that are held
	ending  atomic.Int64 // of those, what closed connections hold yet
	origins atomic.Int64 // len(from)

	mu          sync.Mutex // guards what follows
	open        int
	from        map[string]*source
	fromFading  fading[*source]
	callers     map[string]*caller
	callersFade fading[*caller]
	refused     int     // that are kept open
	strangers   *source // of those
}

// Bounds are those of one port.
type Bounds struct {
	Connections, PerAddress int   // that are open
	Memory                  int64 // bytes that are held for calls; see heldLimits
	Rates                   Rates
}

// Told are called for each connection that is refused, each that is closed because its calls hold too
// much, and each call that is refused because of its rate.
type Told struct{ Refused, Shed, Late func() }

// NewConnections returns the connections of one port.
func NewConnections(bounds Bounds, told Told, log *slog.Logger) *Connections {
	return &Connections{
		bounds: bounds, limits: limitsOf(bounds.Memory), told: told, log: log, handshakes: make(chan struct{}, handshakesAtATime()),
		from: map[string]*source{}, callers: map[string]*caller{}, strangers: newSource("connections that are refused"),
	}
}

func newSource(name string) *source { return &source{name: name, accounts: map[*account]struct{}{}} }

// enter counts a connection from somewhere, or returns why it is refused.
func (c *Connections) enter(conn *heardConn) *api.Error {
	from, now := origin.Of(conn.Conn.RemoteAddr().String()), conn.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.from[from]
	if o == nil {
		var back bool
		if o, back = c.fromFading.find(from, now); !back {
			o = newSource(from)
		}
	}
	const advice = "let sessions share a connection, or raise the limit; then try again"
	switch {
	case c.open >= c.bounds.Connections:
		return api.Errorf(api.Unavailable, "the replica has %d client connections, and at most %d are allowed (max-connections); "+advice, c.open, c.bounds.Connections)
	case o.open >= c.bounds.PerAddress:
		return api.Errorf(api.Unavailable, "the replica has %d client connections from %s, and at most %d are allowed for one address (max-connections-per-address); "+advice, o.open, from, c.bounds.PerAddress)
	case o.silent >= maxSilent:
		return api.Errorf(api.Unavailable, "%d connections from %s have sent nothing yet, and at most %d are allowed; "+advice, o.silent, from, maxSilent)
	case !o.handshakes.take(now, c.bounds.Rates.HandshakesPerAddress):
		return api.Errorf(api.Unavailable, "more than %d connections a second come from %s (max-handshakes-per-address); "+advice, c.bounds.Rates.HandshakesPerAddress, from)
	}
	c.fromFading.drop(from)
	c.open++
	o.open++
	o.silent++
	c.from[from] = o
	c.origins.Store(int64(len(c.from)))
	conn.account = newAccount(c, o, conn)
	conn.account.silent = true
	o.accounts[conn.account] = struct{}{}
	return nil
}

// speaks is called when something was said over a connection for the first time.
func (c *Connections) speaks(a *account) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.speaks()
}

func (c *Connections) leave(a *account) {
	a.close()
	c.mu.Lock()
	c.open--
	a.origin.open--
	a.speaks() // it will say nothing more
	delete(a.origin.accounts, a)
	c.parts(a.conn)
	c.mu.Unlock()
	c.forget(a.origin, a.conn.clock())
}

// forget drops a source that has no connections left and holds nothing, as soon as its buckets are
// full.
func (c *Connections) forget(o *source, now session.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.open == 0 && o.bytes.Load() == 0 && c.from[o.name] == o {
		delete(c.from, o.name)
		c.origins.Store(int64(len(c.from)))
		c.fromFading.put(o.name, o, now)
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
	c.told.Refused()
	if n, ok := c.said.Next(); ok {
		c.log.Warn("refused a client's connection", "event", "connection_refused", "from", origin.Of(conn.Conn.RemoteAddr().String()), "error", refusal, "count", n)
	}
	if !c.keepRefused(conn) {
		_ = conn.Conn.Close() // nobody else has it
		return false
	}
	conn.refusal, conn.leave = refusal, func() { c.leaveRefused(conn.account) }
	//mutant: conn.expiry = time.AfterFunc(RefusedFor, func() {}) //by TestRefusedConnectionsAreClosed of ./cell
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
		c.log.Error("cannot accept on the client port; trying again", "error", err, "count", n)
	}
}

// keepRefused counts a connection as refused and kept open, if there is room. It may be encrypted to be
// answered, which costs a handshake: so only few are kept in a second, too.
func (c *Connections) keepRefused(conn *heardConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused >= MaxRefused || !c.strangers.handshakes.take(conn.clock(), MaxRefused) {
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
