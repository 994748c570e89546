package peer

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/loglimit"
)

// Bounds of a Raft port. A replica has a handful of peers, each with half a
// dozen connections; what is above that is a mistake or an attack.
const (
	helloTimeout = 5 * time.Second // for both hellos of a connection, and for the whole of dialling
	maxHalfOpen  = 64              // inbound connections whose hello has not been read; the oldest goes
	maxPortConns = 256             // connections in all; a Raft stream costs some 260 KB of buffers
	maxPeers     = 64              // replicas whose client address is remembered
	acceptPause  = 50 * time.Millisecond
)

// errSilenced is returned when a connection is asked of a port that was
// silenced or closed.
var errSilenced = api.Errorf(api.Unavailable, "this replica's raft port is silent: it is stopping, or its disk has stalled")

// PortConfig is what a raftPort is told.
type PortConfig struct {
	Cell    string       // the cell's name
	ID      string       // this replica's
	Client  string       // where clients reach this replica; told to its peers
	Address string       // this replica's Raft address, as the Raft configuration has it
	Listen  net.Listener // the port's from here on

	// passport is what this replica shows of itself, and knows of the others.
	Passport *Passport
	// bootstrap is what one that bootstraps is answered.
	Bootstrap func() BootstrapReport
	// peer names the replica that has this Raft address, false if none has.
	Peer func(address string) (id string, ok bool)
	// connect opens a connection; it returns within timeout.
	Connect func(address string, timeout time.Duration) (net.Conn, error)

	Logger *slog.Logger
}

// Port owns a replica's Raft listener and every connection to and from it.
// Each begins with a hello (see there); then it is handed to Raft's transport,
// or is served as a probe. Goroutines: one accepts; each inbound connection has
// one for its hello, which goes on as the probe's server; close waits for all.
type Port struct {
	PortConfig
	streams chan *portConn // inbound Raft streams on their way to Raft's Accept
	done    chan struct{}  // closed by close
	work    sync.WaitGroup

	mu      sync.Mutex // guards what follows; never held across I/O
	conns   map[*portConn]struct{}
	half    []*portConn // inbound, hello not read, oldest first
	silent  bool
	closed  bool
	clients map[string]string // client address by replica ID, from hellos
	report  func() Report     // what probes are answered; nil until Raft runs

	said loglimit.Refusals
}

// portConn is a connection of the port, which knows it until it is closed.
type portConn struct {
	net.Conn
	port *Port
}

// OpenPort starts accepting. Probes are refused until answer is called.
func OpenPort(cfg PortConfig) *Port {
	p := &Port{
		PortConfig: cfg,
		streams:    make(chan *portConn),
		done:       make(chan struct{}),
		conns:      map[*portConn]struct{}{},
		clients:    map[string]string{},
	}
	p.work.Go(p.accept)
	return p
}

// Answer lets probes be answered. It is to be called once Raft has been
// constructed and not before: until then the persisted term is not loaded, and
// an answer of zero would vouch for a leader that this replica has voted out.
func (p *Port) Answer(report func() Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report = report
}

// ClientAddress returns where that replica said its clients reach it, empty if
// it has not been heard of.
func (p *Port) ClientAddress(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients[id]
}

// silence makes the replica fall silent at once: no connection sends, answers
// or is made any more. What the kernel has buffered is thrown away where it can
// be. It does not wait and may be called from anywhere, any number of times.
func (p *Port) silence() {
	p.mu.Lock()
	p.silent = true
	open := make([]*portConn, 0, len(p.conns))
	for c := range p.conns {
		open = append(open, c)
	}
	p.mu.Unlock()
	_ = p.Listen.Close() // a listener that will not close is of no use to anybody
	for _, c := range open {
		c.abort()
	}
}

// close silences the port and waits for its goroutines.
func (p *Port) close() {
	p.silence()
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.done)
	}
	p.mu.Unlock()
	p.work.Wait()
}

// accept is the accepting goroutine.
func (p *Port) accept() {
	for {
		conn, err := p.Listen.Accept()
		if err != nil {
			if p.isSilent() || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, most likely: try again, not at full speed.
			p.Logger.Error("cannot accept on the raft port; trying again", "address", p.Address, "error", err)
			select {
			case <-time.After(acceptPause):
				continue
			case <-p.done:
				return
			}
		}
		c, err := p.adopt(conn)
		if err != nil {
			p.refuse(conn, err)
			continue
		}
		p.expectHello(c)
		p.work.Go(func() { p.greet(c) })
	}
}

func (p *Port) isSilent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent
}

// adopt makes conn one of the port's.
func (p *Port) adopt(conn net.Conn) (*portConn, error) {
	c := &portConn{Conn: conn, port: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent {
		return nil, errSilenced
	}
	if len(p.conns) >= maxPortConns {
		return nil, api.Errorf(api.QuotaExceeded, "%d connections are open, the most this port takes", len(p.conns))
	}
	p.conns[c] = struct{}{}
	return c, nil
}

// expectHello counts c as half open. When there are too many, the oldest is
// closed: a peer's hello arrives within a round trip, so whoever has waited
// longest is least likely to be one.
func (p *Port) expectHello(c *portConn) {
	p.mu.Lock()
	p.half = append(p.half, c)
	var oldest *portConn
	if len(p.half) > maxHalfOpen {
		oldest = p.half[0]
		p.half = p.half[1:]
	}
	p.mu.Unlock()
	if oldest != nil {
		oldest.abort()
	}
}

// greeted takes c off the half-open ones.
func (p *Port) greeted(c *portConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, h := range p.half {
		if h == c {
			p.half = append(p.half[:i], p.half[i+1:]...)
			return
		}
	}
}

// greet exchanges hellos on an inbound connection and passes it on.
func (p *Port) greet(c *portConn) {
	h, err := p.answerHello(c)
	p.greeted(c)
	if err != nil {
		p.refuse(c, err)
		return
	}
	switch h.kind {
	case probeStream:
		p.serveProbe(c)
		return
	case bootstrapStream:
		p.serveBootstrap(c)
		return
	}
	select {
	case p.streams <- c:
	case <-p.done:
		c.abort()
	}
}

// answerHello reads the caller's hello and answers it. A caller of this version
// is told why it is refused; anything else just loses its connection.
func (p *Port) answerHello(c *portConn) (hello, error) {
	late := time.AfterFunc(helloTimeout, c.abort)
	defer late.Stop()
	h, err := readHello(c)
	if err != nil {
		return hello{}, err
	}
	verdict, err := p.judge(h)
	answer := p.Passport.sign(hello{kind: h.kind, verdict: verdict, cell: p.Cell, from: p.ID, to: h.from, client: p.Client})
	if werr := writeHello(c, answer); err == nil {
		err = werr
	}
	if xerr := p.Passport.examine(h); err == nil {
		err = xerr
	}
	if err == nil && !late.Stop() {
		err = fmt.Errorf("no hello within %v", helloTimeout)
	}
	if err == nil && h.kind != bootstrapStream { // whose caller may be anybody
		p.remember(h)
	}
	return h, err
}

// judge decides on a caller's hello.
func (p *Port) judge(h hello) (helloVerdict, error) {
	switch {
	case h.kind < raftStream || h.kind > bootstrapStream:
		return helloWrongReplica, fmt.Errorf("%w: connection of kind %d", errHello, h.kind)
	case h.cell != p.Cell:
		return helloWrongCell, api.Errorf(api.WrongCell, "replica %.64q of cell %.64q called cell %q: check the raft addresses in its configuration", h.from, h.cell, p.Cell)
	case h.to != p.ID:
		return helloWrongReplica, api.Errorf(api.InvalidArgument, "replica %.64q called for %.64q, this is %q: check the raft addresses in its configuration", h.from, h.to, p.ID)
	case h.from == p.ID || h.from == "":
		return helloSameID, api.Errorf(api.InvalidArgument, "another replica goes by this one's ID %q: give each its own", p.ID)
	}
	if h.kind == bootstrapStream {
		return helloAccepted, nil
	}
	return p.Passport.admit(h)
}

// remember keeps what a hello says of a peer's client address.
func (p *Port) remember(h hello) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.clients[h.from]; known || len(p.clients) < maxPeers {
		p.clients[h.from] = h.client
	}
}

// refuse closes an inbound connection and says so, at most once a second.
func (p *Port) refuse(conn net.Conn, cause error) {
	remote := conn.RemoteAddr()
	_ = conn.Close() // it is refused; whether it closes cleanly is the caller's business
	p.mu.Lock()
	silent := p.silent
	p.mu.Unlock()
	if silent {
		return
	}
	if n, ok := p.said.Next(); ok {
		p.Logger.Warn("refused a connection to the raft port", "address", p.Address, "remote", remote, "error", cause, "refused", n)
	}
}

// dial connects to a replica and exchanges hellos, in at most timeout.
func (p *Port) dial(kind helloKind, id, address string, timeout time.Duration) (net.Conn, error) {
	if p.isSilent() {
		return nil, errSilenced
	}
	timeout = min(timeout, helloTimeout)
	conn, err := p.Connect(address, timeout)
	if err != nil {
		return nil, &api.Error{Code: api.Unavailable, Op: "connect to replica " + id, Path: address, Message: "it does not answer", Err: err}
	}
	c, err := p.adopt(conn)
	if err != nil {
		_ = conn.Close() // nothing was sent on it
		return nil, err
	}
	late := time.AfterFunc(timeout, c.abort)
	err = p.sendHello(c, kind, id)
	if !late.Stop() && err == nil {
		err = api.Errorf(api.DeadlineExceeded, "no hello within %v", timeout)
	}
	if err != nil {
		_ = c.Close() // err says more than a failing close could
		return nil, fmt.Errorf("connect to replica %s at %s: %w", id, address, err)
	}
	return c, nil
}

// sendHello introduces this replica and checks who answers.
func (p *Port) sendHello(c *portConn, kind helloKind, id string) error {
	asked := p.Passport.sign(hello{kind: kind, cell: p.Cell, from: p.ID, to: id, client: p.Client})
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
	case kind != bootstrapStream:
		if err := p.Passport.check(asked, h); err != nil {
			return err
		}
	}
	if h.verdict != helloAccepted {
		return api.Errorf(api.Unavailable, "it refused this replica (verdict %d): its log says why", h.verdict)
	}
	if kind != bootstrapStream {
		p.remember(h)
	}
	return nil
}

// Close closes the connection and makes the port forget it.
func (c *portConn) Close() error {
	c.port.forget(c)
	return c.Conn.Close()
}

// abort closes the connection without sending what is still buffered, and
// without a farewell that could block.
func (c *portConn) abort() {
	c.port.forget(c)
	conn := c.Conn
	if tls, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = tls.NetConn()
	}
	if tcp, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0) // fails only on a closed socket
	}
	_ = conn.Close() // nobody is left to tell
}

func (p *Port) forget(c *portConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
