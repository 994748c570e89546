package wire

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
)

// Certificates say who is at the other end of a connection; *certs.Store implements it.
type Certificates interface {
	// Server returns how connections are encrypted. It takes whatever certificate the other
	// end shows.
	Server() *tls.Config
	// Check returns why a chain does not count, or does not count any more.
	Check(chain []*x509.Certificate, use x509.ExtKeyUsage) error
	// Expired reports whether the time of the first certificate of a chain is over.
	Expired(chain []*x509.Certificate) bool
	// Principal returns whom the first of a chain names.
	Principal(chain []*x509.Certificate) (string, error)
}

// Tokens say who is at the other end of a connection that has shown no certificate.
type Tokens interface {
	// Verify returns whom a token names, and a function that reports whether it counts still; after
	// other keys count than before if changed is set.
	Verify(ctx context.Context, token string) (principal string, counts func(changed bool) bool, err error)
}

// identity is who is at the other end of an encrypted connection. It does not change: another
// takes its place.
type identity struct {
	principal string                  // if refusal is nil
	refusal   error                   // why what was shown does not count
	counts    func(changed bool) bool // whether it counts still, if refusal is nil
	expiry    *time.Timer             // closes the connection, if refusal is set
	pending   bool                    // nothing was shown yet, and a token may be
	token     *[sha256.Size]byte      // the hash of the one that was shown; nil without one
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
	from := &begun{Conn: c.Conn, first: first[:]}
	if c.stream = from; first[0] != handshakeByte {
		c.expire()
		return nil
	}
	encrypted := tls.Server(from, c.certificates.Server())
	c.stream = encrypted
	if err := encrypted.Handshake(); err != nil { //nolint:noctx // the server has set a deadline
		return err
	}
	c.identify(encrypted.ConnectionState().PeerCertificates)
	return nil
}

// begun is a connection of which the first bytes were read.
type begun struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}

// identify finds out whom a chain of certificates names. A connection whose chain does not count is
// served for a while, to answer its calls with the reason.
func (c *heardConn) identify(chain []*x509.Certificate) {
	if len(chain) == 0 && c.tokens != nil {
		c.identity.Store(&identity{pending: true, refusal: unauthenticated("neither a certificate nor a token was shown", c.tokens), expiry: c.expire()})
		return
	}
	who := &identity{counts: func(changed bool) bool {
		return !c.certificates.Expired(chain) && (!changed || c.certificates.Check(chain, x509.ExtKeyUsageClientAuth) == nil)
	}}
	err := c.certificates.Check(chain, x509.ExtKeyUsageClientAuth)
	if err == nil {
		who.principal, err = c.certificates.Principal(chain)
	}
	if err == nil {
		err = checkPrincipal(who.principal)
	}
	if err != nil {
		who.refusal, who.expiry = unauthenticated(err.Error(), c.tokens), c.expire()
	}
	c.identity.Store(who)
}

// expire has the connection closed soon. Its server notices, and closes it, too.
func (c *heardConn) expire() *time.Timer {
	return time.AfterFunc(RefusedFor, func() { _ = c.Conn.Close() })
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
	switch {
	case c.refusal != nil:
		return c.refusal
	case c.certificates == nil:
		return nil
	}
	if who := c.identity.Load(); who != nil {
		return who.refusal
	}
	return unauthenticated("the connection is not encrypted", c.tokens)
}

// Recheck closes the connections whose certificates or tokens do not count any more, and returns how many
// those are: all of them, if changed says that others count than before; else those that
// have expired.
func (c *Connections) Recheck(changed bool) int {
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
		if who := conn.identity.Load(); who != nil && who.refusal == nil && !who.counts(changed) {
			closed++
			_ = conn.Conn.Close() // its server notices, and closes it
		}
	}
	return closed
}

// principalOf returns who calls, by the connection of the call; "" if its client was not asked.
func principalOf(ctx context.Context) string {
	if conn := connOf(ctx); conn != nil {
		if who := conn.identity.Load(); who != nil {
			return who.principal
		}
	}
	return ""
}

// checkOwner refuses a call in a session of another principal than the one that calls: a
// session's token alone is of no use. It looks at every request that names a session.
func (s *service) checkOwner(ctx context.Context, request any) error {
	q, ok := request.(interface{ GetCaller() *pb.Caller })
	caller := principalOf(ctx)
	if !ok || caller == "" {
		return nil
	}
	if m, err := s.cfg.Replica.Master(); err == nil { // else the call is not served either
		owner, err := s.ownerOf(m, q.GetCaller().GetSession())
		if err == nil && owner != caller {
			err = api.Errorf(api.SessionExpired, "this is no session of %q; open a new one", caller)
		}
		if err != nil {
			return status(s.fail("call", err))
		}
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
