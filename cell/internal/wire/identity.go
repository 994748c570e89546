package wire

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"runtime"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
)

// Certificates say who is at the other end of a connection; *certs.Store implements it.
type Certificates interface {
	// Accept has a connection encrypted. It takes whatever certificate the other end shows, but not many bytes
	// of it.
	Accept(conn net.Conn) *tls.Conn
	// Identify returns whom the first of a chain names, and a function that reports, without much
	// effort, whether it counts still; or why it does not count.
	Identify(chain []*x509.Certificate) (principal string, counts func() bool, err error)
}

// Tokens say who is at the other end of a connection that has shown no certificate.
type Tokens interface {
	// Verify returns whom a token names, and a function that reports whether it counts still; or why it does not count.
	Verify(ctx context.Context, token string) (principal string, counts func() bool, err error)
}

// identity is who is at the other end of an encrypted connection. It does not change: another
// takes its place.
type identity struct {
	principal string             // "" if it was never known
	refusal   error              // why what was shown does not count, or does not any more
	counts    func() bool        // whether it counts still, if refusal is nil
	expiry    *time.Timer        // closes the connection, if refusal is set
	pending   bool               // nothing was shown yet, and a token may be
	token     *[sha256.Size]byte // the hash of the one that was shown; nil without one
}

// handshakeByte is the first byte of every connection of TLS, and neither of frames nor of HTTP/2.
const handshakeByte = 22

// begin decides, where there are certificates, what is said over a connection, and finds out who is at the other end. It is called by the
// first Read, whose time the server bounds, and before any Write. A client that does not speak
// TLS where it should is told so, and nothing else: see refused.
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
	c.identify(encrypted.ConnectionState().PeerCertificates)
	return nil
}

// opening is a connection of which the first bytes were read, and are read again. Its handshake takes
// processor time in turn with others, but waits for the other end beside them. Else thousands of handshakes
// that begin together would be as many goroutines that can run, and every call would wait behind them.
type opening struct {
	net.Conn
	first []byte
	slots chan struct{} // an element for each handshake that takes processor time
	over  bool          // the handshake has ended
}

// handshakesAtATime leaves half of the processors to calls.
func handshakesAtATime() int { return max(1, runtime.GOMAXPROCS(0)/2) }

func (c *opening) take() { c.slots <- struct{}{} }

// end is called once the handshake has ended, by the goroutine that made it.
func (c *opening) end() {
	c.over = true
	<-c.slots
}

// Read implements net.Conn.
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

// identify finds out whom a chain of certificates names. A connection whose chain does not count is
// served for a while, to answer its calls with the reason.
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

// refuse has the connection answer calls with why it is refused, and closed soon. Its server notices, and
// closes it, too.
func (c *heardConn) refuse(who *identity) {
	who.expiry = time.AfterFunc(RefusedFor, func() { _ = c.Conn.Close() })
	if c.identity.Store(who); c.closed.Load() { // Close may have missed it
		who.expiry.Stop()
	}
}

// unauthenticated says why a client is refused, and what it can do.
func unauthenticated(why string, tokens Tokens) error {
	why += "; this cell knows clients by certificates (Config.TLS; chubbyctl --cacert, --cert and --key)"
	if tokens != nil {
		why += " and by tokens (Config.Credentials; chubbyctl --token-file)"
	}
	return &api.Error{Code: api.Unauthenticated, Message: why}
}

// refused returns what calls over the connection are answered; nil if they are served.
func (c *heardConn) refused() error {
	if c.refusal != nil {
		return c.refusal
	}
	if who := c.identity.Load(); who != nil {
		return who.refusal
	}
	return nil // nothing is encrypted
}

// Recheck closes the connections whose certificates or tokens do not count any more, and returns how many
// those are. It is called every few seconds, so that one which was being identified while what counts changed
// is found by the next call.
func (c *Connections) Recheck() int {
	var open []*heardConn
	c.mu.Lock()
	for _, o := range c.from {
		for a := range o.accounts {
			open = append(open, a.conn)
		}
	}
	c.mu.Unlock()
	closed := 0
	for _, conn := range open {
		if who := conn.identity.Load(); who != nil && who.refusal == nil && !who.counts() {
			closed++
			// Calls that have arrived are not served any more. Those that are being served go on as calls of this principal.
			conn.identity.Store(&identity{principal: who.principal, refusal: unauthenticated("what was shown does not count any more", conn.tokens)})
			_ = conn.Conn.Close() // its server notices, and closes it
		}
	}
	return closed
}

// principalOf returns who calls, by the connection of the call; "" if clients are not asked who they are, and never for
// another reason.
func principalOf(ctx context.Context) string {
	if conn := connOf(ctx); conn != nil {
		if who := conn.identity.Load(); who != nil {
			return cmp.Or(who.principal, nobody)
		}
	}
	return ""
}

// nobody is the principal of a client that was asked, and has not said who it is. No list can admit it.
const nobody = "#nobody"

// checkOwner refuses a call in a session of another principal than the one that calls: a
// session's token alone is of no use. It looks at every request that names a session.
func (s *service) checkOwner(ctx context.Context, request any) error {
	q, ok := request.(interface{ GetCaller() *pb.Caller })
	caller := principalOf(ctx)
	if !ok || caller == "" {
		return nil
	}
	m, err := s.cfg.Replica.Master()
	if err == nil {
		var owner string
		owner, err = s.ownerOf(m, q.GetCaller().GetSession())
		if err == nil && owner != caller {
			callOf(ctx).isForeign()
			err = api.Errorf(api.SessionExpired, "this is no session of %q; open a new one", caller)
		}
	}
	//mutant: if err != nil && m != nil {
	if err != nil {
		return status(s.fail("call", err))
	}
	return nil
}

// ownerOf returns the principal of a session, by its token.
func (s *service) ownerOf(m *master.Master, token []byte) (string, error) {
	tokens := signerOf(m)
	if owner, known := s.owners.get(tokens.secret, token); known {
		return owner, nil
	}
	id, err := tokens.parseSession(token)
	if err != nil {
		return "", err
	}
	owner, err := m.Sessions.Principal(id)
	if err != nil {
		return "", err
	}
	s.owners.put(tokens.secret, token, owner)
	return owner, nil
}
