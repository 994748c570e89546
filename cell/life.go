package cell

import (
	"bufio"
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc/peer"
)

// maxSilence is how long before the start of a grant the client must have shown a
// sign of life at the latest. A KeepAlive that was parked for longer is none: its
// client may have been stopped since, or its network be silent, and the master
// would begin a whole lease for somebody who has gone. So what a client that falls
// silent holds is free after lease, lock-delay and this, however it fell silent.
//
// Whatever arrives over the connection of the session's KeepAlives is a sign of life:
// sessions that share one seldom have to give another.
const maxSilence = time.Second

// hearing is a listener whose connections are counted, and know when something last
// arrived.
type hearing struct {
	net.Listener
	clock session.Clock
	conns *connections
}

// Accept implements net.Listener.
func (l hearing) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			l.conns.stumble(err)
			return nil, acceptError{err}
		}
		if one := hear(conn, l.clock); l.conns.admit(one) {
			return one, nil
		}
	}
}

// heardConn is a connection that knows when something last arrived over it, and what is
// held for its calls. gRPC reads it without a buffer of its own, and so never more than
// the frame that it needs next: see withCall.
type heardConn struct {
	net.Conn
	buffer *bufio.Reader
	clock  session.Clock
	last   atomic.Int64 // a session.Instant; 0 before anything arrived
	asked  atomic.Int64 // when a sign of life was last asked for; 0 if it never was

	// Set by connections.
	refusal error       // what calls over it are answered; nil if it is not refused
	expiry  *time.Timer // of one that is refused
	leave   func()      // called once, when it is closed
	account *account
	closed  atomic.Bool
}

// readBuffer is how much is read from a connection at a time.
const readBuffer = 8 << 10

func hear(conn net.Conn, clock session.Clock) *heardConn {
	c := &heardConn{Conn: conn, clock: clock}
	c.buffer = bufio.NewReaderSize(arrivals{c}, readBuffer)
	return c
}

// arrivals is what arrives over a connection.
type arrivals struct{ conn *heardConn }

// Read implements io.Reader.
func (a arrivals) Read(p []byte) (int, error) {
	n, err := a.conn.Conn.Read(p)
	if n > 0 {
		a.conn.last.Store(int64(a.conn.clock()))
	}
	return n, err
}

// Close implements net.Conn.
func (c *heardConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.leave()
		if c.expiry != nil {
			c.expiry.Stop()
		}
	}
	return c.Conn.Close()
}

// Read implements net.Conn.
func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.buffer.Read(p)
	c.account.received(p[:n])
	return n, err
}

// Write implements net.Conn.
func (c *heardConn) Write(p []byte) (int, error) {
	c.account.sending()
	n, err := c.Conn.Write(p)
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

// ask reports whether a sign of life is to be asked for over the connection, and
// that it was not already asked for after since.
func (c *heardConn) ask(now, since session.Instant) bool {
	last := c.asked.Load()
	return session.Instant(last) <= since && c.asked.CompareAndSwap(last, int64(now))
}

// signs is what is known of the life of a call's client.
type signs struct {
	receipt session.Instant // of the call
	conn    *heardConn      // nil if it is not known
}

func signsOf(ctx context.Context, receipt session.Instant) signs {
	return signs{receipt: receipt, conn: connOf(ctx)}
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

// fresh reports whether there was a sign of life lately.
func (s signs) fresh(now session.Instant) bool {
	last := s.receipt
	if s.conn != nil {
		last = max(last, session.Instant(s.conn.last.Load()))
	}
	return now.Sub(last) <= maxSilence
}

// silent reports whether a call that was parked, and has nothing to bring, is to be
// answered without a grant, because its client has shown no sign of life lately: it
// comes back at once, if it is there, and has the grant then. Of sessions that
// share a connection one is asked so; the others wait for what that brings.
func (m *master) silent(ctx context.Context, c caller, p *parked, s signs) (bool, error) {
	now := m.clock()
	if s.fresh(now) || m.news(c) {
		return false, nil
	}
	wait := m.leaseOf(c.session) / replyTogether
	if s.conn != nil && !s.conn.ask(now, now.Add(-wait)) {
		if err := m.waitUntil(ctx, p, wait); err != nil {
			return false, err
		}
		if s.fresh(m.clock()) || m.news(c) {
			return false, nil
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if box := m.boxes[c.session]; box != nil {
		box.unpark(p)
		box.asked = true
	}
	return true, nil
}

// news reports whether there is something to tell a session.
func (m *master) news(c caller) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	box := m.boxes[c.session]
	return box == nil || len(box.events) > 0
}
