package wire

import (
	"context"
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

// identity is who is at the other end of an encrypted connection. It does not change.
type identity struct {
	chain     []*x509.Certificate // as it was shown
	principal string              // if refusal is nil
	refusal   error               // why the chain does not count
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
	who := &identity{chain: chain}
	err := c.certificates.Check(chain, x509.ExtKeyUsageClientAuth)
	if err == nil {
		who.principal, err = c.certificates.Principal(chain)
	}
	if err == nil {
		err = checkPrincipal(who.principal)
	}
	if err != nil {
		who.refusal = &api.Error{Code: api.Unauthenticated, Message: err.Error() + howToBeKnown}
		c.expire()
	}
	c.identity.Store(who)
}

// expire has the connection closed soon. Its server notices, and closes it, too.
func (c *heardConn) expire() {
	time.AfterFunc(RefusedFor, func() { _ = c.Conn.Close() })
}

// howToBeKnown is what a client can do that is refused.
const howToBeKnown = "; this cell knows clients by certificates (Config.TLS; chubbyctl --cacert, --cert and --key)"

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
	return &api.Error{Code: api.Unauthenticated, Message: "the connection is not encrypted" + howToBeKnown}
}

// Recheck closes the connections whose certificates do not count any more, and returns how many
// those are: all of them, if changed says that other certificates count than before; else those that
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
		who := conn.identity.Load()
		switch {
		case who == nil, who.refusal != nil, !changed && !conn.certificates.Expired(who.chain):
			continue
		case changed && conn.certificates.Check(who.chain, x509.ExtKeyUsageClientAuth) == nil:
			continue
		}
		closed++
		_ = conn.Conn.Close() // its server notices, and closes it
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
