package wire

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
)

// Certificates identify the other end of a connection.
type Certificates interface {
	// Accept encrypts a connection. It accepts any certificate of limited size. By GuestProtocol, both ends show
	// the certificates of replicas.
	Accept(conn net.Conn) *tls.Conn
	// Speaker is Identify for these: it returns the ID of a member of the cell.
	Speaker(chain []*x509.Certificate) (id string, counts func() bool, err error)
	// Identify returns the principal of the chain's first certificate, and a function that cheaply reports
	// whether it is still valid; or why it is invalid.
	Identify(chain []*x509.Certificate) (principal string, counts func() bool, err error)
}

// Tokens identify the other end of a connection without a certificate.
type Tokens interface {
	// Verify returns a token's principal, and a function that reports whether it is still valid; or why it is invalid.
	Verify(ctx context.Context, token string) (principal string, counts func() bool, err error)
}

// identity is the other end of an encrypted connection. It is immutable, but can be replaced.
type identity struct {
	principal string             // "" if unknown
	refusal   error              // why its credentials are invalid
	counts    func() bool        // whether it is still valid, if refusal is nil
	expiry    *time.Timer        // closes a refused connection
	pending   bool               // no credentials yet; a token may still come
	token     *[sha256.Size]byte // hash of the token; nil without one
	from, by  string             // of a guest: the address, and the replica that speaks
}

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

func unauthenticated(why string, tokens Tokens) error {
	why += "; this cell knows clients by certificates (Config.TLS; chubbyctl --cacert, --cert and --key)"
	if tokens != nil {
		why += " and by tokens (Config.Credentials; chubbyctl --token-file)"
	}
	return &api.Error{Code: api.Unauthenticated, Message: why}
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

// principalOf returns the caller, by the connection of the call; "" only if clients are not identified.
func principalOf(ctx context.Context) string {
	if conn := connOf(ctx); conn != nil {
		if who := conn.identity.Load(); who != nil {
			return cmp.Or(who.principal, nobody)
		}
	}
	return ""
}

// nobody is the principal of a client that has not identified itself. No list can admit it.
const nobody = "#nobody"

// checkOwner rejects a call in a session of another principal: a session's token alone is useless.
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
			callOf(ctx).foreign = true
			err = api.Errorf(api.SessionExpired, "this is no session of %q; open a new one", caller)
		}
	}
	//mutant: if err != nil && m != nil {
	if err != nil {
		return status(s.fail("call", err))
	}
	return nil
}

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

// CheckPrincipal checks that a name fits in a line of an access control list, and that people can tell it from
// other entries: it has no invisible characters.
func CheckPrincipal(name string) error {
	problem := ""
	switch {
	case name == "" || len(name) > api.MaxPrincipal || !utf8.ValidString(name):
		problem = fmt.Sprintf("want UTF-8 of 1 to %d bytes", api.MaxPrincipal)
	case strings.ContainsFunc(name, isHidden), strings.TrimSpace(name) != name:
		problem = "it has a character that cannot be seen, or a space at its end"
	case name == "*" || name[0] == '@' || name[0] == '#':
		problem = "'*', '@' and '#' mean something else in an access control list"
	}
	if problem == "" {
		return nil
	}
	format := "%.40q cannot be a principal: %s"
	if strings.ContainsFunc(name, isHidden) {
		format = "%+.40q cannot be a principal: %s"
	}
	return api.Errorf(api.InvalidArgument, format, name, problem)
}
