package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/origin"
	"github.com/chubbylock/chubby/internal/certs"
)

// OpenPort begins to accept. Probes are refused until AnswerProbes is called.
func OpenPort(cfg PortConfig) *Port {
	p := &Port{
		PortConfig: cfg,
		streams:    make(chan *portConn),
		done:       make(chan struct{}),
		conns:      map[*portConn]struct{}{},
		clients:    map[string]string{},
		callers:    map[string]string{},
	}
	p.work.Go(p.accept)
	return p
}

func (p *Port) accept() {
	for {
		conn, err := p.Listen.Accept()
		if err != nil {
			if p.isSilent() || errors.Is(err, net.ErrClosed) {
				return
			}
			// Probably the process has no file descriptors left: retry, but slowly.
			p.Logger.Error("cannot accept on the raft port; trying again", "address", p.Address, "error", err)
			select {
			case <-time.After(acceptPause):
				continue
			case <-p.done:
				return
			}
		}
		c := &portConn{Conn: conn, port: p, origin: origin.Of(conn.RemoteAddr().String())}
		if p.Certificates != nil {
			c.Conn = p.Certificates.Accept(c.Conn) // the hello does the handshake
		}
		if err := p.register(c); err != nil {
			p.refuseConnection(conn, err)
			continue
		}
		p.expectHello(c)
		p.work.Go(func() { p.exchangeHellos(c) })
	}
}

// expectHello counts c as half open. Above the limit, it closes the oldest of the address with most: a replica has few.
func (p *Port) expectHello(c *portConn) {
	p.mu.Lock()
	p.half = append(p.half, c)
	var oldest *portConn
	if len(p.half) > maxHalfOpen {
		count := map[string]int{}
		for _, h := range p.half {
			count[h.origin]++
		}
		at := 0
		for i, h := range p.half {
			//mutant: if count[h.origin] > len(p.half) {
			if count[h.origin] > count[p.half[at].origin] {
				at = i
			}
		}
		oldest = p.half[at]
		p.half = slices.Delete(p.half, at, at+1)
	}
	p.mu.Unlock()
	if oldest != nil {
		oldest.abort()
	}
}

func (p *Port) helloRead(c *portConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, h := range p.half {
		if h == c {
			p.half = append(p.half[:i], p.half[i+1:]...)
			return
		}
	}
}

// refuseConnection closes an inbound connection, and logs at most once a second.
func (p *Port) refuseConnection(conn net.Conn, cause error) {
	remote := conn.RemoteAddr()
	_ = conn.Close() // the error does not matter
	if p.quiet() != nil {
		return
	}
	text, event := "refused a connection to the raft port", "connection_refused"
	if isBroken(cause) {
		text, event = "a connection to the raft port ended before it said whose it is", "connection_closed"
	}
	if n, ok := p.said.Next(); ok {
		p.Logger.Warn(text, "event", event, "address", p.Address, "from", remote, "error", cause, "count", n)
	}
}

// isBroken reports whether the other end or the network ended a connection, so nothing was refused.
func isBroken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded)
}

// streamKind is how the called replica serves a kind of connection.
type streamKind struct {
	name   string
	anyone bool                   // callers need not be members, but have the cell's name
	serve  func(*Port, *portConn) // runs after both hellos
}

// streamKinds has a row for each accepted kind of connection. The tests of who may connect use these rows.
func streamKinds() map[helloKind]streamKind {
	return map[helloKind]streamKind{
		raftStream:  {name: "raft", serve: (*Port).handToRaft},
		probeStream: {name: "probe", serve: (*Port).serveProbe},
		// A replica that bootstraps, joins, or has lost its data is unknown until the answer.
		bootstrapStream: {name: "bootstrap", anyone: true, serve: (*Port).serveBootstrap},
	}
}

func (p *Port) exchangeHellos(c *portConn) {
	h, err := p.answerHello(c)
	p.helloRead(c)
	if err != nil {
		p.refuseConnection(c, err)
		return
	}
	streamKinds()[h.kind].serve(p, c)
}

// answerHello reads and answers the caller's hello. A caller of this version learns why it is refused; others
// are only disconnected.
func (p *Port) answerHello(c *portConn) (hello, error) {
	late := time.AfterFunc(helloTimeout, c.abort)
	defer late.Stop()
	h, err := readHello(c)
	if err == nil {
		err = p.checkCertificate(c, h)
	}
	if err != nil {
		return hello{}, err // without an answer, which would tell a stranger of this replica
	}
	p.mu.Lock()
	c.from = h.from // before the check whether it has left: Expel finds the connection from now on
	p.mu.Unlock()
	verdict, err := p.checkCaller(h)
	p.noteCaller(h, verdict)
	answer := hello{kind: h.kind, verdict: verdict, cell: p.Cell, from: p.ID, to: h.from}
	if verdict != helloWrongCell { // another cell learns only that it is wrong here
		answer.client = p.Client
		answer = p.Passport.complete(answer)
	}
	if werr := writeHello(c, answer); err == nil {
		err = werr
	}
	if xerr := p.Passport.checkOwnLoss(h); err == nil {
		err = xerr
	}
	if err == nil && !late.Stop() {
		err = fmt.Errorf("no hello within %v", helloTimeout)
	}
	if err == nil && !streamKinds()[h.kind].anyone {
		p.noteClientAddress(h)
	}
	return h, err
}

func (p *Port) checkCaller(h hello) (helloVerdict, error) {
	kind, known := streamKinds()[h.kind]
	switch {
	case !known:
		return helloWrongReplica, fmt.Errorf("%w: connection of kind %d", errHello, h.kind)
	case h.cell != p.Cell:
		return helloWrongCell, api.Errorf(api.WrongCell, "replica %.64q of cell %.64q called cell %q: check the raft addresses in its configuration", h.from, h.cell, p.Cell)
	case h.to != p.ID:
		return helloWrongReplica, api.Errorf(api.InvalidArgument, "replica %.64q called for %.64q, this is %q: check the raft addresses in its configuration", h.from, h.to, p.ID)
	case h.from == p.ID || h.from == "":
		return helloSameID, api.Errorf(api.InvalidArgument, "another replica goes by this one's ID %q: give each its own", p.ID)
	}
	if kind.anyone {
		return helloAccepted, nil
	}
	return p.Passport.checkCaller(h)
}

// dial connects to a replica and exchanges hellos, within timeout.
func (p *Port) dial(kind helloKind, id, address string, timeout time.Duration) (net.Conn, error) {
	if err := p.quiet(); err != nil {
		return nil, err
	}
	timeout = min(timeout, helloTimeout)
	conn, err := p.Connect(address, timeout)
	if err != nil {
		return nil, &api.Error{
			Code:    api.Unavailable,
			Op:      "connect to replica " + id,
			Path:    address,
			Message: "it does not answer",
			Err:     err,
		}
	}
	c := &portConn{Conn: conn, port: p}
	p.encryptOutbound(c, id)
	if err := p.register(c); err != nil {
		_ = conn.Close() // nothing was sent on it
		return nil, err
	}
	late := time.AfterFunc(timeout, c.abort)
	err = p.sendHello(c, kind, id)
	if !late.Stop() && err == nil {
		err = api.Errorf(api.DeadlineExceeded, "no hello within %v", timeout)
	}
	if err != nil {
		_ = c.Close() // err is the error to report
		return nil, fmt.Errorf("connect to replica %s at %s: %w", id, address, err)
	}
	return c, nil
}

// refusalTimeout limits Refused. A kernel refuses within a round trip.
const refusalTimeout = 200 * time.Millisecond

// Refused reports whether a replica's kernel refuses connections: its process has died, or is silent and ending.
func (p *Port) Refused(id, address string) bool {
	conn, err := p.dial(probeStream, id, address, refusalTimeout)
	if err == nil {
		_ = conn.Close() // nothing was asked on it
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func (p *Port) sendHello(c *portConn, kind helloKind, id string) error {
	asked := p.Passport.complete(hello{
		kind:   kind,
		cell:   p.Cell,
		from:   p.ID,
		to:     id,
		client: p.Client,
		raft:   p.Address,
	})
	if err := writeHello(c, asked); err != nil {
		return err
	}
	h, err := readHello(c)
	switch {
	case err != nil:
		return err
	case h.cell != p.Cell:
		return &api.Error{Code: api.WrongCell, Cell: h.cell, Message: fmt.Sprintf("a replica of cell %.64q answers, not of %q: check the raft addresses", h.cell, p.Cell)}
	case h.from != id:
		return api.Errorf(api.Unavailable, "replica %.64q answers, not %q: check the raft addresses", h.from, id)
	case !streamKinds()[kind].anyone:
		if err := p.Passport.checkAnswer(asked, h); err != nil {
			return err
		}
	}
	if h.verdict != helloAccepted {
		return api.Errorf(api.Unavailable, "it refused this replica (verdict %d): its log says why", h.verdict)
	}
	if !streamKinds()[kind].anyone {
		p.noteClientAddress(h)
	}
	return nil
}

// encryptOutbound encrypts a connection to a replica, if there are certificates. The hello does the handshake,
// which fails if another replica answers.
func (p *Port) encryptOutbound(c *portConn, id string) {
	if p.Certificates == nil {
		return
	}
	c.Conn = tls.Client(c.Conn, p.Certificates.Client("", func(theirs *x509.Certificate, proof certs.Proof) error {
		c.proof.Store(&proof)
		return IsReplica(theirs, certs.Replica{Cell: p.Cell, ID: id})
	}))
}

// checkCertificate returns an error if a caller's certificate is invalid or does not match its hello.
func (p *Port) checkCertificate(c *portConn, h hello) error {
	encrypted, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	chain := encrypted.ConnectionState().PeerCertificates
	proof, err := p.Certificates.Check(chain, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return err
	}
	c.proof.Store(&proof)
	return IsReplica(chain[0], certs.Replica{Cell: h.cell, ID: h.from})
}

// IsReplica returns an error if a certificate does not name that replica.
func IsReplica(cert *x509.Certificate, want certs.Replica) error {
	is, err := certs.ReplicaOf(cert)
	if err == nil && is != want {
		err = api.Errorf(api.Unauthenticated, "the certificate is that of %v, not of %v: see which files the replica has", is.URI(), want.URI())
	}
	return err
}
