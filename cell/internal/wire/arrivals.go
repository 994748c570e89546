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

// heardConn records when something last arrived, and what its calls hold. Its server reads it unbuffered, so
// never beyond the frame that it needs next: see withCall.
type heardConn struct {
	net.Conn
	buffer *bufio.Reader // nil before something arrived; only the reader uses it
	clock  session.Clock
	last   atomic.Int64 // a session.Instant; 0 before anything arrived
	asked  atomic.Int64 // when a sign of life was last requested, 0 for never

	certificates Certificates             // nil if connections are not encrypted
	tokens       Tokens                   // nil if tokens are not accepted
	asking       chan struct{}            // has an element while a token is verified; nil if tokens are not accepted
	stream       net.Conn                 // the plain text over Conn; nil before something arrived
	identity     atomic.Pointer[identity] // nil before something arrived, and if nothing is encrypted

	// Connections sets these.
	refusal error       // the answer to its calls; nil if it is accepted
	expiry  *time.Timer // closes a refused connection
	account *account
	closed  atomic.Bool

	caller atomic.Pointer[party] // the principal whose calls it carries; nil if unknown
	rest   atomic.Int64          // how long to delay its next read, a time.Duration
	rested time.Duration         // how long its reads were delayed in succession; only the reader uses it
	gone   chan struct{}         // closed with the connection
}

// readBuffer is how many bytes are read from a connection at a time.
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

type arrivals struct{ conn *heardConn }

func (a arrivals) Read(p []byte) (int, error) {
	a.conn.pause()
	n, err := a.conn.stream.Read(p)
	if n > 0 {
		a.conn.last.Store(int64(a.conn.clock()))
	}
	return n, err
}

func (c *heardConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		close(c.gone)
		c.account.all.leave(c)
		if c.expiry != nil {
			c.expiry.Stop()
		}
		if who := c.identity.Load(); who != nil && who.expiry != nil {
			who.expiry.Stop()
		}
	}
	return c.Conn.Close()
}

func (c *heardConn) Read(p []byte) (int, error) {
	buffer, err := c.reader()
	if err != nil {
		return 0, err
	}
	n, err := buffer.Read(p)
	c.account.received(p[:n])
	return n, err
}

// reader returns the connection's reader. It makes it on demand, so that silent connections are cheap.
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

func (c *heardConn) Peek(n int) ([]byte, error) {
	buffer, err := c.reader()
	if err != nil {
		return nil, err
	}
	return buffer.Peek(n)
}

func (c *heardConn) Write(p []byte) (int, error) {
	c.account.sending()
	n, err := c.stream.Write(p) // a write answers something that has arrived, so its time does not count
	c.account.sent(p[:n])
	return n, err
}

// RemoteAddr implements net.Conn. It leads from a call to its connection.
func (c *heardConn) RemoteAddr() net.Addr { return heardAddr{Addr: c.Conn.RemoteAddr(), conn: c} }

// heardAddr is the address of a connection's other end, with the connection.
type heardAddr struct {
	net.Addr
	conn *heardConn
}

func (c *heardConn) LastArrival() session.Instant { return session.Instant(c.last.Load()) }

func (c *heardConn) AskForLife(now, since session.Instant) bool {
	last := c.asked.Load()
	return session.Instant(last) <= since && c.asked.CompareAndSwap(last, int64(now))
}

// connOf returns the connection of a call, nil if it is unknown.
func connOf(ctx context.Context) *heardConn {
	if p, ok := peer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(heardAddr); ok {
			return addr.conn
		}
	}
	return nil
}
