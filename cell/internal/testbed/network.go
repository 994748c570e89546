package testbed

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Network is a network in memory, whose waits a testing/synctest bubble
// understands. A link that is cut swallows what is written and refuses new
// connections, as a broken cable does; a host that is held gets no answers on
// the connections it made, which arrive when it is released, as those in the
// socket buffers of a process that was stopped do.
type Network struct {
	mu    sync.Mutex // guards what follows
	hosts map[string]*acceptor
	links map[[2]string]bool       // cut, by from and to
	held  map[string]chan struct{} // closed on release, by host
}

// NewNetwork returns a network without hosts.
func NewNetwork() *Network {
	return &Network{hosts: map[string]*acceptor{}, links: map[[2]string]bool{}, held: map[string]chan struct{}{}}
}

// Listen makes the host reachable.
func (n *Network) Listen(host string) net.Listener {
	l := newAcceptor()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = l
	return &listener{Listener: l, net: n, host: host}
}

// Dialer connects from the host.
func (n *Network) Dialer(from string) func(string, time.Duration) (net.Conn, error) {
	return func(to string, timeout time.Duration) (net.Conn, error) {
		n.mu.Lock()
		l, cut := n.hosts[to], n.links[[2]string{from, to}] || n.links[[2]string{to, from}]
		n.mu.Unlock()
		if l == nil || cut {
			return nil, errors.New("no route to host " + to)
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		conn, err := l.dial(ctx)
		if err != nil {
			return nil, err
		}
		w := &wire{
			Conn:    conn,
			net:     n,
			from:    from,
			to:      to,
			dialled: true,
			closed:  make(chan struct{}),
		}
		// The other end learns who called from the first bytes, see listener.
		_, err = conn.Write([]byte{byte(len(from))})
		if err == nil {
			_, err = conn.Write([]byte(from))
		}
		return w, err
	}
}

// Cut breaks or mends the links between two hosts, in both directions.
func (n *Network) Cut(a, b string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[[2]string{a, b}], n.links[[2]string{b, a}] = cut, cut
}

// Hold withholds answers from a host, until release.
func (n *Network) Hold(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[host] = make(chan struct{})
}

// Release lets a held host have its answers.
func (n *Network) Release(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.held[host])
	delete(n.held, host)
}

// listener names the caller of each accepted connection.
type listener struct {
	net.Listener
	net  *Network
	host string
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, net: l.net, from: l.host, closed: make(chan struct{})}, nil
}

// wire is one end of a connection.
type wire struct {
	net.Conn
	net     *Network
	from    string // this end
	to      string // the other; at an accepting end known after the first read
	dialled bool
	named   sync.Once
	close   sync.Once
	closed  chan struct{}
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	w.named.Do(w.readName)
	n, err := w.Conn.Read(p)
	if !w.dialled {
		return n, err
	}
	w.net.mu.Lock()
	held := w.net.held[w.from]
	w.net.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-w.closed:
			return 0, net.ErrClosed
		}
	}
	return n, err
}

// readName reads who called.
func (w *wire) readName() {
	if w.dialled {
		return
	}
	var size [1]byte
	if _, err := w.Conn.Read(size[:]); err != nil {
		return
	}
	name := make([]byte, size[0])
	for got := 0; got < len(name); {
		n, err := w.Conn.Read(name[got:])
		if err != nil {
			return
		}
		got += n
	}
	w.to = string(name)
}

// RemoteAddr implements net.Conn: the other end's host, and a port.
func (w *wire) RemoteAddr() net.Addr {
	w.named.Do(w.readName)
	return address(w.to + ":1")
}

// address is that of a host of the network.
type address string

// Network implements net.Addr.
func (address) Network() string { return "memory" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	w.net.mu.Lock()
	cut := w.net.links[[2]string{w.from, w.to}]
	w.net.mu.Unlock()
	if cut {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.close.Do(func() { close(w.closed) })
	return w.Conn.Close()
}
