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

// Bounds of a Raft port. A replica has a handful of peers, each with half a
// dozen connections; more is a mistake or an attack.
const (
	helloTimeout = 5 * time.Second // for both hellos of a connection, and for the whole of dialling
	maxHalfOpen  = 64              // inbound connections whose hello has not been read; the oldest goes
	maxPortConns = 256             // connections in all; a Raft stream costs some 260 KB of buffers
	maxPeers     = 64              // replicas whose client address is remembered
	acceptPause  = 50 * time.Millisecond
)

// errSilenced is the error of a port that was silenced or closed.
var errSilenced = api.Errorf(api.Unavailable, "this replica's raft port is silent: it is stopping, or its disk has stalled")

// errHushed is the error of a port that is silent for a while.
var errHushed = api.Errorf(api.Unavailable, "this replica's raft port is silent for a moment, because of a drill")

// PortConfig is what a port needs to know.
type PortConfig struct {
	Cell    string       // the cell's name
	ID      string       // this replica's
	Client  string       // where clients reach this replica; told to its peers
	Address string       // this replica's Raft address, as the Raft configuration has it
	Listen  net.Listener // the port closes it

	// Certificates are what replicas know each other by; nil if they believe what a hello says.
	Certificates *certs.Store
	// Passport is what this replica shows of itself, and knows of the others.
	Passport *Passport
	// Bootstrap answers a replica that bootstraps.
	Bootstrap func() BootstrapReport
	// Guest is given a connection over which another replica speaks for somebody, and owns it from then on.
	Guest func(net.Conn, Guest)
	// MemberAt returns the ID of the replica that has this Raft address; ok is false if
	// there is none.
	MemberAt func(address string) (id string, ok bool)
	// Connect opens a connection; it returns within timeout.
	Connect func(address string, timeout time.Duration) (net.Conn, error)
	// Lost is called when a replica has closed a stream on which it sends Raft's messages,
	// or has died. It must not wait.
	Lost func(id string)

	Logger *slog.Logger
}

// Port owns a replica's Raft listener and every connection to and from it. Each
// connection begins with a hello (see there); then the port hands it to Raft's
// transport, or answers probes or a bootstrap over it.
//
// Goroutines: one accepts; each inbound connection has one for its hello, which goes on
// to answer probes; close waits for all.
type Port struct {
	PortConfig
	streams chan *portConn // inbound Raft streams on their way to Raft's Accept
	done    chan struct{}  // closed by close
	work    sync.WaitGroup

	mu      sync.Mutex // guards what follows; never held across I/O
	conns   map[*portConn]struct{}
	half    []*portConn // inbound ones whose hello has not been read, oldest first
	silent  bool
	hushed  bool // for a while
	closed  bool
	clients map[string]string // client address by replica ID, from hellos
	guests  int               // of conns, those over which other replicas speak for guests
	report  func() Report     // the answer to probes; nil until Raft runs
	callers map[string]string // while this replica is in no cell: Raft address, by ID, of replicas that have called and are in one

	said loglimit.Refusals
}

// portConn is a connection that is registered at the port until it is closed.
type portConn struct {
	net.Conn
	port   *Port
	from   string                      // the replica that has dialled, once its hello was read; "" if it was this one
	origin string                      // of who has dialled; "" if it was this one
	guest  bool                        // it is one of Port.guests; the port's mu guards it
	proof  atomic.Pointer[certs.Proof] // why the other end's certificate counts; nil before that is known
}

// OpenPort starts accepting. Probes are refused until AnswerProbes is called.
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

// AnswerProbes lets the port answer probes. It must be called once Raft has been
// constructed and not before: until then the persisted term is not loaded, and an answer
// of zero would support a leader that this replica has voted out.
func (p *Port) AnswerProbes(report func() Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report = report
}

// ClientAddress returns where clients reach that replica, as it said in its last hello,
// "" if there was none.
func (p *Port) ClientAddress(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients[id]
}

// silence makes the replica fall silent at once: from now on no connection sends or
// answers, and none is made. What the kernel has buffered is thrown away where that is
// possible. silence does not wait, and may be called from any goroutine, any number of
// times.
func (p *Port) silence() {
	p.mu.Lock()
	p.silent = true
	p.mu.Unlock()
	_ = p.Listen.Close() // nothing can be done about a listener that does not close
	p.breakAll()
}

// hush is silence for a while: every connection is broken, and none is made or taken. The listener stays open, so that nobody
// takes this replica's process for dead. The first of two that overlap ends both.
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

// breakAll breaks every connection.
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

// accept is the goroutine that accepts connections.
func (p *Port) accept() {
	for {
		conn, err := p.Listen.Accept()
		if err != nil {
			if p.isSilent() || errors.Is(err, net.ErrClosed) {
				return
			}
			// Most likely the process has no file descriptors left: try again, but not at full speed.
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

// quiet returns why the port makes no connection; nil if it does.
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

// register makes c a connection of the port.
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

// expectHello counts c as half open. If there are too many, the oldest of the address that has most of
// them is closed: a replica has a few, for as long as a handshake takes.
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

// helloRead notes that c is not half open any more.
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

// refuseConnection closes an inbound connection and logs that, at most once a second.
func (p *Port) refuseConnection(conn net.Conn, cause error) {
	remote := conn.RemoteAddr()
	_ = conn.Close() // it is refused, so an error does not matter
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

// isBroken reports whether the other end, or the network, has ended a connection: nothing was refused here.
func isBroken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded)
}

// Close closes the connection and removes it from the port. In this order, so that abort can end what TLS
// has to say at the end.
func (c *portConn) Close() error {
	defer c.port.unregister(c)
	return c.Conn.Close()
}

// abort closes the connection without sending what is still buffered, and so without
// blocking.
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
	if _, open := p.conns[c]; open && c.guest {
		p.guests--
	}
	delete(p.conns, c)
}
