package memnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Network carries connections between named addresses in memory. It is safe for concurrent use.
type Network struct {
	mu        sync.Mutex // guards the fields below
	listeners map[string]*listener
	conns     map[*link]bool
	healed    chan struct{}      // closed and replaced when a mark ends
	marks     map[[3]string]bool // what is wrong, with which host, and with which port or other host
	delays    map[string]time.Duration
}

// Troubles of a host, of its connections to one port, or of those to another host.
const (
	cut       = "cut"       // nothing passes, and new connections wait
	paused    = "paused"    // nothing passes
	held      = "held"      // nothing arrives over the connections that the host made
	refusing  = "refusing"  // there are no connections
	isolated  = "isolated"  // the same, for one port
	swallowed = "swallowed" // what is written is lost, and new connections are refused
)

// New returns a network without hosts.
func New() *Network {
	return &Network{
		listeners: map[string]*listener{}, conns: map[*link]bool{}, healed: make(chan struct{}),
		marks: map[[3]string]bool{}, delays: map[string]time.Duration{},
	}
}

// ErrRefused is the error of a connection with a host that refuses.
var ErrRefused = fmt.Errorf("memnet: the connection is refused, or was reset: %w", syscall.ECONNREFUSED)

// Listen opens an address: that of a host, or host:port.
func (n *Network) Listen(address string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{network: n, address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[address] = l
	return l
}

type name string

func (name) Network() string  { return "memory" }
func (n name) String() string { return string(n) }

// Dial connects one host to an address. It waits while one of the two is cut off, and until the other side accepts.
func (n *Network) Dial(ctx context.Context, from, address string) (net.Conn, error) {
	to, port, _ := strings.Cut(address, ":")
	if err := n.reach(ctx, from, to); err != nil {
		return nil, err
	}
	n.mu.Lock()
	l, ok := n.listeners[address]
	alone := n.marks[[3]string{isolated, from, port}] || n.marks[[3]string{isolated, to, port}]
	down := alone || n.either(refusing, from, to) || n.areApart(from, to)
	n.mu.Unlock()
	switch {
	case down:
		return nil, ErrRefused
	case !ok:
		return nil, fmt.Errorf("memnet: dial %s: %w", address, syscall.ECONNREFUSED)
	}
	conn, err := l.dial(ctx, from)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	one := &link{pipe: conn, network: n, ends: [2]string{from, to}, port: port, delay: n.delays[from], closed: make(chan struct{})}
	n.conns[one] = true
	n.settle(one)
	return one, nil
}

// either reports whether one of two hosts has a mark. The caller holds n.mu.
func (n *Network) either(what, a, b string) bool {
	return n.marks[[3]string{what, a}] || n.marks[[3]string{what, b}]
}

// areApart reports whether the link of two hosts is broken. The caller holds n.mu.
func (n *Network) areApart(a, b string) bool {
	return n.marks[[3]string{swallowed, min(a, b), max(a, b)}]
}

// reach waits while one of two hosts is cut off, as dialing over a cut cable
// waits for a timeout.
func (n *Network) reach(ctx context.Context, from, to string) error {
	for {
		n.mu.Lock()
		healed, waits := n.healed, n.either(cut, from, to)
		n.mu.Unlock()
		if !waits {
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
	network *Network
	ends    [2]string
	port    string        // that was dialled
	delay   time.Duration // of everything the dialing end receives
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
			return 0, ErrRefused
		}
		if !l.in.awaitThaw() { // it may have been frozen on its way
			return 0, ErrRefused
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
	l.network.mu.Lock()
	if !l.isClosed() {
		close(l.closed)
	}
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

// settle has a connection carry what the marks let it carry. The caller holds n.mu.
func (n *Network) settle(l *link) {
	frozen, lost := n.frozen(l), n.areApart(l.ends[0], l.ends[1])
	l.out.set(frozen, lost)
	l.in.set(frozen || n.marks[[3]string{held, l.ends[0]}], lost)
	if !frozen && l.isClosed() {
		delete(n.conns, l)
	}
}

// frozen reports whether nothing passes a connection. The caller holds n.mu.
func (n *Network) frozen(l *link) bool {
	return n.either(paused, l.ends[0], l.ends[1]) || n.either(cut, l.ends[0], l.ends[1])
}

// set begins or ends that something is wrong. What is written to a frozen connection, and its close, arrive
// when it has thawed.
func (n *Network) set(what, a, b string, wrong bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.marks[[3]string{what, a, b}] = wrong
	if !wrong {
		close(n.healed)
		n.healed = make(chan struct{})
	}
	for l := range n.conns {
		n.settle(l)
	}
}

// Pause freezes the connections of a host, or thaws them: nothing passes them, as if its processes were stopped.
func (n *Network) Pause(host string, stopped bool) { n.set(paused, host, "", stopped) }

// CutOff has a host get and send nothing, and its new connections wait, or connects it again. Neither side notices.
func (n *Network) CutOff(host string, off bool) { n.set(cut, host, "", off) }

// Cut breaks the link of two hosts, or mends it: what is written is swallowed, and new connections are refused.
func (n *Network) Cut(a, b string, apart bool) { n.set(swallowed, min(a, b), max(a, b), apart) }

// Hold withholds from a host what it is sent over the connections that it made, until Release: it arrives then, as what is in the
// socket buffers of a process that was stopped does.
func (n *Network) Hold(host string) { n.set(held, host, "", true) }

// Release ends Hold.
func (n *Network) Release(host string) { n.set(held, host, "", false) }

// Refuse has a host lose its connections at once, and refuse new ones, or accept them again.
func (n *Network) Refuse(host string, refuses bool) {
	n.set(refusing, host, "", refuses)
	if refuses {
		n.Sever(host)
	}
}

// Isolate does the same for the connections to one port: those to the host's own, and those that it makes to that of others.
func (n *Network) Isolate(host, port string, alone bool) {
	n.set(isolated, host, port, alone)
	if alone {
		n.sever(func(l *link) bool { return l.port == port && (l.ends[0] == host || l.ends[1] == host) })
	}
}

// Delay has everything that a host receives over connections which it makes from now on arrive so much later.
func (n *Network) Delay(host string, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delays[host] = delay
}

// Sever breaks the connections of a host.
func (n *Network) Sever(host string) {
	n.sever(func(l *link) bool { return l.ends[0] == host || l.ends[1] == host })
}

func (n *Network) sever(which func(*link) bool) {
	n.mu.Lock()
	var broken []*link
	for l := range n.conns {
		if which(l) {
			broken = append(broken, l)
		}
	}
	n.mu.Unlock()
	for _, l := range broken {
		_ = l.Close() // an error does not matter: it is broken
	}
}

// Dialer returns what dials from a host.
func (n *Network) Dialer(from string) func(string, time.Duration) (net.Conn, error) {
	return func(address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return n.Dial(ctx, from, address)
	}
}
