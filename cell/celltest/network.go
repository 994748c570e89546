package celltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// network carries connections between named addresses in memory. A host that is
// cut off gets and sends nothing, and its new connections wait; neither side
// notices. A host that refuses loses its connections at once, and new ones
// fail.
type network struct {
	mu        sync.Mutex // guards the fields below
	listeners map[string]*listener
	conns     map[*link]bool
	cut       map[string]bool // hosts
	refusing  map[string]bool // hosts
	healed    chan struct{}   // closed and replaced when a host is connected again
	isolated  map[string]bool // replicas that have no connections with other replicas
	paused    map[string]bool // hosts whose connections are frozen
	delays    map[string]time.Duration
}

func newNetwork() *network {
	return &network{
		listeners: map[string]*listener{}, conns: map[*link]bool{},
		cut: map[string]bool{}, refusing: map[string]bool{}, healed: make(chan struct{}), isolated: map[string]bool{}, paused: map[string]bool{}, delays: map[string]time.Duration{},
	}
}

// errCut is the error of a connection with a host that refuses.
var errCut = fmt.Errorf("celltest: the connection is refused, or was reset: %w", syscall.ECONNREFUSED)

// listen opens an address.
func (n *network) listen(address string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := newListener(address)
	n.listeners[address] = l
	return named{listener: l, network: n}
}

// named is a listener that frees its address.
type named struct {
	*listener
	network *network
}

// Close closes the listener; its address can be listened on again.
func (l named) Close() error {
	l.network.mu.Lock()
	if l.network.listeners[l.address] == l.listener {
		delete(l.network.listeners, l.address)
	}
	l.network.mu.Unlock()
	return l.listener.Close()
}

type name string

func (name) Network() string  { return "memory" }
func (n name) String() string { return string(n) }

// dial connects one host to an address.
func (n *network) dial(ctx context.Context, from, address string) (net.Conn, error) {
	to, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if err := n.reach(ctx, from, to); err != nil {
		return nil, err
	}
	n.mu.Lock()
	l, ok := n.listeners[address]
	peers := port == raftPort
	down := n.refusing[from] || n.refusing[to] || peers && (n.isolated[from] || n.isolated[to])
	n.mu.Unlock()
	switch {
	case down:
		return nil, errCut
	case !ok:
		return nil, fmt.Errorf("celltest: dial %s: %w", address, syscall.ECONNREFUSED)
	}
	conn, err := l.dial(ctx, from)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	one := &link{pipe: conn, network: n, ends: [2]string{from, to}, peers: peers, delay: n.delays[from], closed: make(chan struct{})}
	n.conns[one] = true
	one.freeze(n.frozen(one))
	return one, nil
}

// reach waits while one of two hosts is cut off, as dialing over a cut cable
// waits for a timeout.
func (n *network) reach(ctx context.Context, hosts ...string) error {
	for {
		n.mu.Lock()
		healed, cut := n.healed, false
		for _, h := range hosts {
			cut = cut || n.cut[h]
		}
		n.mu.Unlock()
		if !cut {
			return nil
		}
		select {
		case <-healed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// link is one connection of the network.
type link struct {
	*pipe
	network *network
	ends    [2]string
	peers   bool          // between replicas
	delay   time.Duration // of everything the dialing end receives
	once    sync.Once
	closed  chan struct{}
}

// Read delays the data that has arrived.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.pipe.Read(p)
	if l.delay > 0 {
		timer := time.NewTimer(l.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.closed:
			return 0, errCut
		}
		if !l.in.awaitThaw() { // it may have been frozen on its way
			return 0, errCut
		}
	}
	return n, err
}

// If the other end has closed the connection, a Write ends it for reads too: as with TCP, data that
// arrives later is lost. gRPC relies on that. After a write has failed, it tries to send again and
// again without a pause until a read fails; virtual time would stand still meanwhile, and the end
// of the connection would never arrive.
func (l *link) Write(p []byte) (int, error) {
	n, err := l.pipe.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		_ = l.Close() // it never fails
	}
	return n, err
}

// Close closes the connection. If it is frozen, the other end learns of it when
// it thaws.
func (l *link) Close() error {
	l.once.Do(func() { close(l.closed) })
	l.network.mu.Lock()
	if !l.network.frozen(l) {
		delete(l.network.conns, l)
	}
	l.network.mu.Unlock()
	return l.pipe.Close()
}

func (l *link) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// frozen reports whether nothing passes a connection. The caller holds n.mu.
func (n *network) frozen(l *link) bool {
	return n.paused[l.ends[0]] || n.paused[l.ends[1]] || n.cut[l.ends[0]] || n.cut[l.ends[1]]
}

// setPaused freezes or thaws the connections of a host that is paused.
func (n *network) setPaused(host string, paused bool) { n.setFrozen(n.paused, host, paused) }

// setCut freezes or thaws the connections of a host that is cut off or
// connected again.
func (n *network) setCut(host string, cut bool) { n.setFrozen(n.cut, host, cut) }

// setFrozen marks a host and freezes or thaws its connections. What is written
// to a frozen connection, and its close, arrive when it has thawed.
func (n *network) setFrozen(marks map[string]bool, host string, marked bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	marks[host] = marked
	if !n.cut[host] {
		close(n.healed)
		n.healed = make(chan struct{})
	}
	for l := range n.conns {
		if l.ends[0] != host && l.ends[1] != host {
			continue
		}
		frozen := n.frozen(l)
		l.freeze(frozen)
		if !frozen && l.isClosed() {
			delete(n.conns, l)
		}
	}
}

// raftPort is the port of the Raft addresses.
const raftPort = "7431"

// setRefusing makes a host break its connections and refuse new ones, or accept
// them again.
func (n *network) setRefusing(host string, refusing bool) { n.set(n.refusing, host, refusing, false) }

// isolate does the same for connections between replicas only.
func (n *network) isolate(host string, isolated bool) { n.set(n.isolated, host, isolated, true) }

// set marks a host and breaks the connections that the mark forbids.
func (n *network) set(marks map[string]bool, host string, marked, peersOnly bool) {
	n.mu.Lock()
	marks[host] = marked
	n.mu.Unlock()
	if marked {
		n.sever(host, peersOnly)
	}
}

// sever breaks the connections of a host.
func (n *network) sever(host string, peersOnly bool) {
	n.mu.Lock()
	var broken []*link
	for c := range n.conns {
		if (c.peers || !peersOnly) && (c.ends[0] == host || c.ends[1] == host) {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		_ = c.Close() // an error does not matter: it is broken
	}
}

// dialer returns a Dial for a replica's config.
func (n *network) dialer(from string) func(string, time.Duration) (net.Conn, error) {
	return func(address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return n.dial(ctx, from, address)
	}
}
