package wire

import (
	"bufio"
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc/peer"
)

// Listener is a listener whose connections are counted, and know when something last
// arrived.
type Listener struct {
	net.Listener
	Clock       session.Clock
	Connections *Connections

	Certificates Certificates // nil if connections are not encrypted, and nobody is asked who he is
	Tokens       Tokens       // nil if certificates alone count
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

// heardConn is a connection that knows when something last arrived over it, and what is
// held for its calls. Its server reads it without a buffer of its own, and so never more than
// the frame that it needs next: see withCall.
type heardConn struct {
	net.Conn
	buffer *bufio.Reader // nil before something arrived; its reader's
	clock  session.Clock
	last   atomic.Int64 // a session.Instant; 0 before anything arrived
	asked  atomic.Int64 // when a sign of life was last asked for; 0 if it never was

	certificates Certificates             // nil if connections are not encrypted
	tokens       Tokens                   // nil if none count
	asking       chan struct{}            // has an element while a token is looked at; nil if none count
	stream       net.Conn                 // what is said over Conn; nil before something arrived
	identity     atomic.Pointer[identity] // nil before that, too, and if nothing is encrypted

	// Set by connections.
	refusal error       // what calls over it are answered; nil if it is not refused
	expiry  *time.Timer // of one that is refused
	leave   func()      // called once, when it is closed
	account *account
	closed  atomic.Bool

	caller atomic.Pointer[caller] // whose calls its calls are; nil if that is not known
	rest   atomic.Int64           // how much later it is to be read, a time.Duration
	rested time.Duration          // for how long it was read later, in succession; its reader's
	gone   chan struct{}          // closed when it is
}

// readBuffer is how much is read from a connection at a time.
const readBuffer = 8 << 10

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

// arrivals is what arrives over a connection.
type arrivals struct{ conn *heardConn }

// Read implements io.Reader.
func (a arrivals) Read(p []byte) (int, error) {
	a.conn.pause()
	n, err := a.conn.stream.Read(p)
	if n > 0 {
		a.conn.last.Store(int64(a.conn.clock()))
	}
	return n, err
}

// Close implements net.Conn.
func (c *heardConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		close(c.gone)
		c.leave()
		if c.expiry != nil {
			c.expiry.Stop()
		}
		if who := c.identity.Load(); who != nil && who.expiry != nil {
			who.expiry.Stop()
		}
	}
	return c.Conn.Close()
}

// Read implements net.Conn.
func (c *heardConn) Read(p []byte) (int, error) {
	buffer, err := c.reader()
	if err != nil {
		return 0, err
	}
	n, err := buffer.Read(p)
	c.account.received(p[:n])
	return n, err
}

// reader returns what the connection is read through. It is made as late as that, so that connections over which nothing is
// said are cheap.
func (c *heardConn) reader() (*bufio.Reader, error) {
	if c.buffer == nil {
		if c.stream == nil {
			if err := c.begin(); err != nil {
				return nil, err
			}
		}
		c.buffer = bufio.NewReaderSize(arrivals{c}, readBuffer)
	}
	return c.buffer, nil
}

// Peek returns the next bytes that Read will return.
func (c *heardConn) Peek(n int) ([]byte, error) {
	buffer, err := c.reader()
	if err != nil {
		return nil, err
	}
	return buffer.Peek(n)
}

// Write implements net.Conn.
func (c *heardConn) Write(p []byte) (int, error) {
	c.account.sending()
	n, err := c.stream.Write(p) // what is written answers something that has arrived
	c.account.sent(p[:n])
	return n, err
}

// RemoteAddr implements net.Conn. It is the way from a call to its connection.
func (c *heardConn) RemoteAddr() net.Addr { return heardAddr{Addr: c.Conn.RemoteAddr(), conn: c} }

// heardAddr is the address of a connection's other end, and the connection.
type heardAddr struct {
	net.Addr
	conn *heardConn
}

// LastArrival implements Connection.
func (c *heardConn) LastArrival() session.Instant { return session.Instant(c.last.Load()) }

// AskForLife implements Connection.
func (c *heardConn) AskForLife(now, since session.Instant) bool {
	last := c.asked.Load()
	return session.Instant(last) <= since && c.asked.CompareAndSwap(last, int64(now))
}

// connOf returns the connection of a call, nil if it is not known.
func connOf(ctx context.Context) *heardConn {
	if p, ok := peer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(heardAddr); ok {
			return addr.conn
		}
	}
	return nil
}
