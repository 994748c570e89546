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
	cut       map[string]bool    // hosts
	refusing  map[string]bool    // hosts
	healed    chan struct{}      // closed and replaced when a host is connected again
	isolated  map[[2]string]bool // hosts, and ports with which they have no connections
	swallowed map[[2]string]bool // pairs of hosts
	held      map[string]bool    // hosts
	paused    map[string]bool    // hosts whose connections are frozen
	delays    map[string]time.Duration
}

// New returns a network without hosts.
func New() *Network {
	return &Network{
		listeners: map[string]*listener{}, conns: map[*link]bool{}, healed: make(chan struct{}),
		cut: map[string]bool{}, refusing: map[string]bool{}, held: map[string]bool{}, paused: map[string]bool{},
		isolated: map[[2]string]bool{}, swallowed: map[[2]string]bool{}, delays: map[string]time.Duration{},
	}
}

// ErrRefused is the error of a connection with a host that refuses.
var ErrRefused = fmt.Errorf("memnet: the connection is refused, or was reset: %w", syscall.ECONNREFUSED)

// Listen opens an address: that of a host, or host:port.
func (n *Network) Listen(address string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := newListener(address)
	n.listeners[address] = l
	return named{listener: l, network: n}
}

// named is a listener that frees its address.
type named struct {
	*listener
	network *Network
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

// Dial connects one host to an address. It waits while one of the two is cut off, and until the other side accepts.
func (n *Network) Dial(ctx context.Context, from, address string) (net.Conn, error) {
	to, port, _ := strings.Cut(address, ":")
	if err := n.reach(ctx, from, to); err != nil {
		return nil, err
	}
	n.mu.Lock()
	l, ok := n.listeners[address]
	isolated := n.isolated[[2]string{from, port}] || n.isolated[[2]string{to, port}]
	down := n.refusing[from] || n.refusing[to] || isolated || n.swallowed[[2]string{from, to}]
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

// reach waits while one of two hosts is cut off, as dialing over a cut cable
// waits for a timeout.
func (n *Network) reach(ctx context.Context, hosts ...string) error {
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
	network *Network
	ends    [2]string
	port    string        // that was dialled
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

// settle freezes what is under way over a connection, or lets it go on. The caller holds n.mu.
func (n *Network) settle(l *link) {
	l.freeze(n.frozen(l))
	if n.held[l.ends[0]] {
		l.hold()
	}
}

// frozen reports whether nothing passes a connection. The caller holds n.mu.
func (n *Network) frozen(l *link) bool {
	return n.paused[l.ends[0]] || n.paused[l.ends[1]] || n.cut[l.ends[0]] || n.cut[l.ends[1]]
}

// Pause freezes the connections of a host, or thaws them: nothing passes them, as if its processes were stopped.
func (n *Network) Pause(host string, paused bool) { n.setFrozen(n.paused, host, paused) }

// CutOff has a host get and send nothing, and its new connections wait, or connects it again. Neither side notices.
func (n *Network) CutOff(host string, cut bool) { n.setFrozen(n.cut, host, cut) }

// Cut breaks the link of two hosts, or mends it: what is written is swallowed, and new connections are refused.
func (n *Network) Cut(a, b string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.swallowed[[2]string{a, b}], n.swallowed[[2]string{b, a}] = cut, cut
	for l := range n.conns {
		if l.ends == [2]string{a, b} || l.ends == [2]string{b, a} {
			l.swallow(cut)
		}
	}
}

// Hold withholds from a host what it is sent over the connections that it made, until Release: it arrives then, as what is in the
// socket buffers of a process that was stopped does.
func (n *Network) Hold(host string) { n.setHeld(host, true) }

// Release ends Hold.
func (n *Network) Release(host string) { n.setHeld(host, false) }

func (n *Network) setHeld(host string, held bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[host] = held
	for l := range n.conns {
		if l.ends[0] == host {
			n.settle(l)
		}
	}
}

// setFrozen marks a host and freezes or thaws its connections. What is written
// to a frozen connection, and its close, arrive when it has thawed.
func (n *Network) setFrozen(marks map[string]bool, host string, marked bool) {
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
		n.settle(l)
		if !n.frozen(l) && l.isClosed() {
			delete(n.conns, l)
		}
	}
}

// Refuse has a host lose its connections at once, and refuse new ones, or accept them again.
func (n *Network) Refuse(host string, refuses bool) {
	n.mu.Lock()
	n.refusing[host] = refuses
	n.mu.Unlock()
	if refuses {
		n.Sever(host)
	}
}

// Isolate does the same for the connections to one port: those to the host's own, and those that it makes to that of others.
func (n *Network) Isolate(host, port string, isolated bool) {
	n.mu.Lock()
	n.isolated[[2]string{host, port}] = isolated
	n.mu.Unlock()
	if isolated {
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
