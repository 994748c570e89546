package wire

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc/peer"
)

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

type arrivals struct{ conn *heardConn }

// Read takes the time after the data: the receipt of a KeepAlive must not be before its sending.
func (a arrivals) Read(p []byte) (int, error) {
	a.conn.pause()
	//mutant: before := a.conn.clock(); defer func() { a.conn.last.Store(int64(before)) }(); n, err := a.conn.stream.Read(p)
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

// pause delays the next read from a connection that has wasted much. Only the connection's reader calls it.
func (c *heardConn) pause() {
	if c.rest.Load() == 0 {
		c.rested = 0
		return
	}
	if c.rested >= maxRested {
		all := c.account.all
		if all.told.Shed(); c.refusal == nil {
			if n, ok := all.saidShed.Next(); ok {
				from, _ := c.from()
				all.log.Warn("closed a client's connection: too many of its calls were for nothing", "event", "connection_closed", "from", from, "count", n)
			}
		}
		_ = c.Close() // its server notices
		return
	}
	rest := time.Duration(c.rest.Swap(0))
	//mutant: c.rested += maxRest
	c.rested += rest
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	//mutant: /* nothing */
	case <-c.gone:
	}
}

// maxRest is the longest delay of a read, and maxRested the longest succession of delays before the connection
// is closed: else its data would be read for minutes after the client has gone. A count of delays says little:
// a client that waits for its answers is delayed for milliseconds, and others may share its connection.
const (
	maxRest   = 2 * time.Second
	maxRested = 40 * time.Second
)

// handshakeByte begins every TLS connection, and neither frames nor HTTP/2.
const handshakeByte = 22

// begin starts TLS on a connection, where there are certificates, and identifies the other end. The first Read
// calls it, within the server's deadline and before any Write. Clients that do not speak TLS get only an error:
// see refused.
func (c *heardConn) begin() error {
	var first [1]byte
	if _, err := io.ReadFull(c.Conn, first[:]); err != nil {
		return err
	}
	turn := &opening{Conn: c.Conn, first: first[:], slots: c.account.all.handshakes}
	if c.stream = turn; first[0] != handshakeByte {
		turn.over = true
		c.refuse(&identity{refusal: unauthenticated("the connection is not encrypted", c.tokens)})
		return nil
	}
	turn.take()
	defer turn.end()
	encrypted := c.certificates.Accept(turn)
	c.stream = encrypted
	if err := encrypted.Handshake(); err != nil { //nolint:noctx // the server has set a deadline
		return err
	}
	state := encrypted.ConnectionState()
	if state.NegotiatedProtocol == GuestProtocol {
		return c.hearGuest(encrypted)
	}
	c.identify(state.PeerCertificates)
	return nil
}

// opening is a connection whose first byte will be read again. Handshakes take processor time in turn, but wait
// for the other end in parallel. Else thousands at once would be as many runnable goroutines, and every call
// would wait behind them.
type opening struct {
	net.Conn
	first []byte
	slots chan struct{} // an element for each running handshake
	over  bool          // the handshake has ended
}

// handshakesAtATime leaves half of the processors to calls.
func handshakesAtATime() int { return max(1, runtime.GOMAXPROCS(0)/2) }

func (c *opening) take() { c.slots <- struct{}{} }

// end ends the handshake's turn, in its goroutine.
func (c *opening) end() {
	c.over = true
	<-c.slots
}

func (c *opening) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	if c.over {
		return c.Conn.Read(p)
	}
	<-c.slots
	n, err := c.Conn.Read(p)
	c.take()
	return n, err
}

// identify identifies a client by its certificates. If they are invalid, the connection is served for a while,
// to answer calls with the reason.
func (c *heardConn) identify(chain []*x509.Certificate) {
	if len(chain) == 0 && c.tokens != nil {
		c.refuse(&identity{pending: true, refusal: unauthenticated("neither a certificate nor a token was shown", c.tokens)})
		return
	}
	principal, counts, err := c.certificates.Identify(chain)
	if err == nil {
		//mutant: err = nil //by TestTLSRefusesStrangers of ./cell
		err = CheckPrincipal(principal)
	}
	if err != nil {
		c.refuse(&identity{refusal: unauthenticated(err.Error(), c.tokens)})
		return
	}
	c.identity.Store(&identity{principal: principal, counts: counts})
	c.account.all.knows(c, principal)
}

// refuse has the connection answer calls with a reason, and closes it soon. Its server notices.
func (c *heardConn) refuse(who *identity) {
	who.expiry = time.AfterFunc(RefusedFor, func() { _ = c.Conn.Close() })
	if c.identity.Store(who); c.closed.Load() { // Close may have missed it
		who.expiry.Stop()
	}
}

// refused returns the answer to calls over the connection; nil if they are served.
func (c *heardConn) refused() error {
	if c.refusal != nil {
		return c.refusal
	}
	if who := c.identity.Load(); who != nil {
		return who.refusal
	}
	return nil // nothing is encrypted
}

// principalOf returns the caller, by the connection of the call; "" only if clients are not identified.
func principalOf(ctx context.Context) string {
	if conn := connOf(ctx); conn != nil {
		if who := conn.identity.Load(); who != nil {
			return cmp.Or(who.principal, nobody)
		}
	}
	return ""
}

// refusedFor is refused for a call.
func (c *heardConn) refusedFor(r rpc) error {
	if r.takesTokens && c.takesToken() {
		return nil
	}
	return c.refused()
}

// takesToken reports whether Authenticate is served: the client is known, or a token may still identify it.
func (c *heardConn) takesToken() bool {
	who := c.identity.Load()
	return c.refusal == nil && (who == nil || who.refusal == nil || who.pending)
}

// authenticate takes a token for its connection. A valid one may be followed by others of the same principal,
// so that a client need not reconnect before its token expires.
func (c *heardConn) authenticate(ctx context.Context, token string) error {
	who := c.identity.Load()
	if c.refusal != nil || who == nil {
		return c.refused() // nil if clients are not identified
	}
	hash := sha256.Sum256([]byte(token))
	if c.tokens == nil || !who.pending && who.token == nil {
		return c.needless(who)
	}
	// One at a time: the first valid token identifies the connection.
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if who = c.identity.Load(); who.token != nil && (who.refusal != nil || *who.token == hash) {
		return who.refusal
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, RefusedFor)
	defer cancel()
	next := &identity{token: &hash}
	var err error
	if next.principal, next.counts, err = c.tokens.Verify(ctx, token); err == nil {
		//mutant: err = nil //by TestTokensOverGRPC of ./cell
		err = CheckPrincipal(next.principal)
	}
	switch {
	case err != nil && context.Cause(caller) != nil:
		return context.Cause(caller) // it may not have waited for the keys, so nothing is known of the token
	case err != nil && who.pending:
		next.refusal, next.expiry = unauthenticated(err.Error(), c.tokens), who.expiry
		c.identity.Store(next)
		return next.refusal
	case err != nil:
		return unauthenticated(err.Error(), c.tokens)
	case !who.pending && who.principal != next.principal:
		return api.Errorf(api.Unauthenticated, "the token names %q, and this connection is that of %q: connect anew", next.principal, who.principal)
	case who.pending && !who.expiry.Stop():
		return api.Errorf(api.Unavailable, "the connection is being closed, since it took %v to show a token that counts; connect anew", RefusedFor)
	}
	c.identity.Store(next)
	c.account.all.knows(c, next.principal)
	return nil
}

// needless returns the answer to a token that a connection does not take.
func (c *heardConn) needless(who *identity) error {
	if who.refusal != nil {
		return who.refusal
	}
	if c.tokens == nil {
		return api.Errorf(api.Unauthenticated, "this cell takes no tokens: it knows clients by certificates, and that of this connection names %q; leave the token away", who.principal)
	}
	return api.Errorf(api.Unauthenticated, "the certificate of this connection names %q already: show either a certificate or a token", who.principal)
}
