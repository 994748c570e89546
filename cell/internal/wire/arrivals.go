package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
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

// GuestProtocol is what a member of the cell asks for (ALPN) to speak for a guest over a connection to the client
// port. Then both ends show the certificates of replicas, and the member introduces the guest: 2 bytes of length,
// big-endian, and a Guest in JSON.
const GuestProtocol = "chubby-guest"

// maxGuest is the longest introduction that is read, in bytes.
const maxGuest = 2 << 10

// Guest is a visitor of a replica's console. The guest's rights count, and not those of the replica.
type Guest struct {
	Principal string `json:"principal"`
	Address   string `json:"address"` // the browser's, for the audit log
}

// Introduce begins the guest's connection.
func (g Guest) Introduce(to io.Writer) error {
	text, err := json.Marshal(g)
	if err == nil {
		_, err = to.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	}
	return err
}

// hearGuest identifies a connection by its guest, if a member of the cell speaks for it. It hears the introduction
// first, so that calls can be answered with what is wrong.
func (c *heardConn) hearGuest(conn *tls.Conn) error {
	guest, err := readGuest(conn)
	if err != nil {
		return err
	}
	//mutant: speaker, counts, err := "r1", func() bool { return true }, error(nil) //by TestSpeakers of ./cell
	speaker, counts, err := c.certificates.Speaker(conn.ConnectionState().PeerCertificates)
	if err == nil {
		err = CheckPrincipal(guest.Principal)
	}
	if err != nil {
		c.refuse(&identity{refusal: unauthenticated(err.Error(), nil)})
		return nil
	}
	c.identity.Store(&identity{principal: guest.Principal, counts: counts, from: guest.Address, by: speaker})
	c.account.all.knows(c, guest.Principal)
	return nil
}

// from returns where the client is, and which replica speaks for it, if one does.
func (c *heardConn) from() (address, by string) {
	if who := c.identity.Load(); who != nil && who.by != "" {
		return who.from, who.by
	}
	return c.Conn.RemoteAddr().String(), ""
}

func readGuest(from io.Reader) (g Guest, err error) {
	var size [2]byte
	if _, err = io.ReadFull(from, size[:]); err != nil {
		return g, err
	}
	n := binary.BigEndian.Uint16(size[:])
	if n > maxGuest {
		return g, api.Errorf(api.InvalidArgument, "the introduction of a guest takes %d bytes, more than %d", n, maxGuest)
	}
	text := make([]byte, n)
	if _, err = io.ReadFull(from, text); err == nil {
		err = json.Unmarshal(text, &g)
	}
	return g, err
}
