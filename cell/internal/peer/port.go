package peer

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/loglimit"
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
	once    sync.Once      // closes done
	work    sync.WaitGroup

	mu      sync.Mutex // guards the fields below; never held across I/O
	conns   map[*portConn]struct{}
	half    []*portConn // inbound ones with an unread hello, oldest first
	silent  bool
	hushed  bool              // silent for a while
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

// Silence makes the replica silent immediately: no connection sends, answers or is made any more. It discards
// the kernel's buffers, where possible. It does not wait, is idempotent, and safe for concurrent use.
func (p *Port) Silence() {
	p.mu.Lock()
	p.silent = true
	p.mu.Unlock()
	_ = p.Listen.Close() // an error changes nothing
	p.breakThose(func(*portConn) bool { return true })
}

// Hush breaks every connection, and neither makes nor accepts one for a while. The listener stays open, so the
// process does not seem dead. The first of two overlapping calls ends both.
func (p *Port) Hush(while time.Duration) {
	p.mu.Lock()
	p.hushed = true
	p.mu.Unlock()
	p.breakThose(func(*portConn) bool { return true })
	time.AfterFunc(while, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hushed = false
	})
}

// breakThose breaks the connections of which that holds, and returns their number. It calls that with mu held.
func (p *Port) breakThose(that func(*portConn) bool) int {
	var list []*portConn
	p.mu.Lock()
	for c := range p.conns {
		if that(c) {
			list = append(list, c)
		}
	}
	p.mu.Unlock()
	for _, c := range list {
		c.abort()
	}
	return len(list)
}

// close silences the port and waits for its goroutines.
func (p *Port) close() {
	p.Silence()
	p.once.Do(func() { close(p.done) })
	p.work.Wait()
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

func (p *Port) handToRaft(c *portConn) {
	select {
	case p.streams <- c:
	case <-p.done:
		c.abort()
	}
}

// Expel closes the connections of replicas that have left the cell. They learn why when they reconnect.
func (p *Port) Expel() {
	roster := p.Passport.me().Roster
	p.breakThose(func(c *portConn) bool { return c.from != "" && roster != nil && roster.HasLeft(c.from) })
}

// Recheck closes the connections of replicas whose certificates are no longer valid, and returns their number.
// It runs every few seconds. It ignores expiry: a cell whose certificates all expire goes on until it needs new
// connections.
func (p *Port) Recheck() int {
	return p.breakThose(func(c *portConn) bool {
		proof := c.proof.Load()
		return proof != nil && !p.Certificates.Counts(*proof)
	})
}

// BootstrapReport is a replica's answer to one that bootstraps.
type BootstrapReport struct {
	ID          string            `json:"id"`
	Incarnation string            `json:"incarnation"`
	Members     []identity.Member `json:"members"` // as its configuration has them, without incarnations
	Roster      *identity.Roster  `json:"roster,omitempty"`
	Begun       bool              `json:"begun,omitempty"`

	// Of a replica that joins or has joined a cell.
	Joins    bool   `json:"joins,omitempty"`
	Client   string `json:"client,omitempty"` // where clients reach it
	HTTP     string `json:"http,omitempty"`
	MaxLevel int    `json:"max_level,omitempty"`
}

// maxReport limits the bytes of a BootstrapReport. The longest roster, of 1,000 replicas with the longest IDs
// and addresses, takes about half: TestLongestReport.
const maxReport = 1 << 20

// serveBootstrap answers a replica that bootstraps: 4 bytes of length, big-endian, and a BootstrapReport in JSON.
func (p *Port) serveBootstrap(c *portConn) {
	defer func() { _ = c.Close() }() // nothing is buffered that a failing close could lose
	text, err := json.Marshal(p.Bootstrap())
	if err != nil {
		p.Logger.Error("cannot report to a replica that bootstraps", "error", err)
		return
	}
	late := time.AfterFunc(helloTimeout, c.abort)
	defer late.Stop()
	_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)) // the caller asks again
}

// maxCallers is how many callers a replica without a cell remembers.
const maxCallers = 16

// noteCaller remembers a caller that is in a cell, while this replica is in none. This replica may ask it for
// admission: all configured members may have left.
func (p *Port) noteCaller(h hello, verdict helloVerdict) {
	if verdict != helloAccepted && verdict != helloNoCell || h.cellID == "" || h.raft == "" || p.Passport.me().InCell() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.callers {
		if len(p.callers) < maxCallers {
			break
		}
		delete(p.callers, id) // any one: those that matter call again
	}
	p.callers[h.from] = h.raft
}

// Callers returns the callers in a cell, while this replica is in none.
func (p *Port) Callers() (list []identity.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, address := range p.callers {
		list = append(list, identity.Member{ID: id, Raft: address})
	}
	return list
}

// serveProbe answers the questions of one connection until it ends. Only here is a term reported.
func (p *Port) serveProbe(c *portConn) {
	defer func() { _ = c.Close() }() // nothing is buffered that a failing close could lose
	p.mu.Lock()
	report := p.report
	p.mu.Unlock()
	if report == nil {
		return // Raft does not run yet; the prober retries
	}
	in := bufio.NewReaderSize(c, probeWindow*questionSize)
	var frame [answerSize]byte
	for {
		if _, err := io.ReadFull(in, frame[:questionSize]); err != nil {
			return
		}
		// Read after the question has arrived: the proof depends on it.
		r := report()
		binary.BigEndian.PutUint64(frame[8:], r.Term)
		binary.BigEndian.PutUint64(frame[16:], r.Last)
		binary.BigEndian.PutUint64(frame[24:], r.Applied)
		binary.BigEndian.PutUint64(frame[32:], r.History)
		binary.BigEndian.PutUint64(frame[40:], r.MaxLevel)
		r.Check.put(frame[48:])
		if _, err := c.Write(frame[:]); err != nil {
			return
		}
	}
}

func (p *Port) noteClientAddress(h hello) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.clients[h.from]; known || len(p.clients) < maxPeers {
		p.clients[h.from] = h.client
	}
}
