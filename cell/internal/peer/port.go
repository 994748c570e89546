package peer

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/loglimit"
	"github.com/chubbylock/chubby/cell/internal/origin"
	"github.com/chubbylock/chubby/internal/certs"
)

// Limits of a Raft port. A replica has a handful of peers, each with half a dozen connections.
const (
	helloTimeout = 5 * time.Second // for both hellos, and for all of dialling
	maxHalfOpen  = 64              // inbound connections with an unread hello; see expectHello
	maxPortConns = 256             // all connections; a Raft stream costs some 260 KB of buffers
	maxPeers     = 64              // replicas whose client address is remembered
	acceptPause  = 50 * time.Millisecond
)

// errSilenced is the error of a silenced or closed port.
var errSilenced = api.Errorf(api.Unavailable, "this replica's raft port is silent: it is stopping, or its disk has stalled")

// errHushed is the error of a temporarily silent port.
var errHushed = api.Errorf(api.Unavailable, "this replica's raft port is silent for a moment, because of a drill")

// PortConfig configures a port.
type PortConfig struct {
	Cell    string       // the cell's name
	ID      string       // this replica's
	Client  string       // where clients reach this replica; peers learn it
	Address string       // this replica's address in the Raft configuration
	Listen  net.Listener // the port closes it

	// Certificates identify replicas; nil: replicas trust a hello.
	Certificates *certs.Store
	// Passport is this replica's, and checks others.
	Passport *Passport
	// Bootstrap reports to a replica that bootstraps.
	Bootstrap func() BootstrapReport
	// MemberAt returns the ID of the replica with a Raft address, if there is one.
	MemberAt func(address string) (id string, ok bool)
	// Connect opens a connection; it returns within timeout.
	Connect func(address string, timeout time.Duration) (net.Conn, error)
	// Lost is called when a replica has closed a Raft stream, or has died. It must not wait.
	Lost func(id string)

	Logger *slog.Logger
}

// Port owns a replica's Raft listener and every connection to and from it. After the hello, it passes a
// connection to Raft's transport, or answers probes or a bootstrap.
//
// One goroutine accepts, and each inbound connection has one for its hello and for probes; close waits for all.
type Port struct {
	PortConfig
	streams chan *portConn // inbound Raft streams for Raft's Accept
	done    chan struct{}  // closed by close
	work    sync.WaitGroup

	mu      sync.Mutex // guards the fields below; never held across I/O
	conns   map[*portConn]struct{}
	half    []*portConn // inbound ones with an unread hello, oldest first
	silent  bool
	hushed  bool // silent for a while
	closed  bool
	clients map[string]string // client addresses by replica ID, from hellos
	report  func() Report     // the answer to probes; nil before Raft runs
	callers map[string]string // Raft addresses by ID of callers in a cell; empty once this replica is in one

	said loglimit.Refusals
}

// portConn is a connection that is registered at the port until it closes.
type portConn struct {
	net.Conn
	port   *Port
	from   string                      // the replica that dialled, once its hello was read; "" for this one
	origin string                      // of the dialler; "" for this replica
	proof  atomic.Pointer[certs.Proof] // why the other end's certificate is valid; nil if unknown
}

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

// AnswerProbes lets the port answer probes. Call it only after Raft was constructed: before, the stored term is
// not loaded, and an answer of zero would support a leader that this replica voted out.
func (p *Port) AnswerProbes(report func() Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report = report
}

// ClientAddress returns where clients reach a replica by its last hello, "" without one.
func (p *Port) ClientAddress(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients[id]
}

// silence makes the replica silent immediately: no connection sends, answers or is made any more. It discards
// the kernel's buffers, where possible. It does not wait, is idempotent, and safe for concurrent use.
func (p *Port) silence() {
	p.mu.Lock()
	p.silent = true
	p.mu.Unlock()
	_ = p.Listen.Close() // an error changes nothing
	p.breakAll()
}

// hush breaks every connection, and neither makes nor accepts one for a while. The listener stays open, so the
// process does not seem dead. The first of two overlapping calls ends both.
func (p *Port) hush(while time.Duration) {
	p.mu.Lock()
	p.hushed = true
	p.mu.Unlock()
	p.breakAll()
	time.AfterFunc(while, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hushed = false
	})
}

func (p *Port) breakAll() {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
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
		p.encryptInbound(c)
		if err := p.register(c); err != nil {
			p.refuseConnection(conn, err)
			continue
		}
		p.expectHello(c)
		p.work.Go(func() { p.exchangeHellos(c) })
	}
}

func (p *Port) isSilent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent
}

func (p *Port) quiet() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quietLocked()
}

// quietLocked is quiet; mu is held.
func (p *Port) quietLocked() error {
	switch {
	case p.silent:
		return errSilenced
	case p.hushed:
		return errHushed
	}
	return nil
}

func (p *Port) register(c *portConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.quietLocked(); err != nil {
		return err
	}
	if len(p.conns) >= maxPortConns {
		return api.Errorf(api.QuotaExceeded, "%d connections are open, the most this port takes", len(p.conns))
	}
	p.conns[c] = struct{}{}
	return nil
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
	p.mu.Lock()
	silent := p.silent || p.hushed
	p.mu.Unlock()
	if silent {
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

// Close closes the connection before it removes it from the port, so that abort can interrupt TLS's farewell.
func (c *portConn) Close() error {
	defer c.port.unregister(c)
	return c.Conn.Close()
}

// abort closes the connection and discards what is buffered, so it does not block.
func (c *portConn) abort() {
	c.port.unregister(c)
	conn := c.Conn
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	if tcp, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0) // fails only on a closed socket
	}
	_ = conn.Close() // the connection is not used any more
}

func (p *Port) unregister(c *portConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
