package cell

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// memNet is a network in memory, whose waits a testing/synctest bubble
// understands. A link that is cut swallows what is written and refuses new
// connections, as a broken cable does; a host that is held gets no answers on
// the connections it made, which arrive when it is released, as those in the
// socket buffers of a process that was stopped do.
type memNet struct {
	mu    sync.Mutex // guards what follows
	hosts map[string]*bufconn.Listener
	links map[[2]string]bool       // cut, by from and to
	held  map[string]chan struct{} // closed on release, by host
}

func newMemNet() *memNet {
	return &memNet{hosts: map[string]*bufconn.Listener{}, links: map[[2]string]bool{}, held: map[string]chan struct{}{}}
}

// listen makes the host reachable.
func (n *memNet) listen(host string) net.Listener {
	l := bufconn.Listen(256 << 10)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = l
	return &memListener{Listener: l, net: n, host: host}
}

// dialer connects from the host.
func (n *memNet) dialer(from string) func(string, time.Duration) (net.Conn, error) {
	return func(to string, timeout time.Duration) (net.Conn, error) {
		n.mu.Lock()
		l, cut := n.hosts[to], n.links[[2]string{from, to}] || n.links[[2]string{to, from}]
		n.mu.Unlock()
		if l == nil || cut {
			return nil, errors.New("no route to host " + to)
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		conn, err := l.DialContext(ctx)
		if err != nil {
			return nil, err
		}
		w := &memWire{Conn: conn, net: n, from: from, to: to, dialled: true, closed: make(chan struct{})}
		// The other end learns who called from the first bytes, see memListener.
		_, err = conn.Write([]byte{byte(len(from))})
		if err == nil {
			_, err = conn.Write([]byte(from))
		}
		return w, err
	}
}

// cut breaks or mends the links between two hosts, in both directions.
func (n *memNet) cut(a, b string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[[2]string{a, b}], n.links[[2]string{b, a}] = cut, cut
}

// hold withholds answers from a host, until release.
func (n *memNet) hold(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[host] = make(chan struct{})
}

func (n *memNet) release(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.held[host])
	delete(n.held, host)
}

// memListener names the caller of each accepted connection.
type memListener struct {
	net.Listener
	net  *memNet
	host string
}

func (l *memListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &memWire{Conn: conn, net: l.net, from: l.host, closed: make(chan struct{})}, nil
}

// memWire is one end of a connection.
type memWire struct {
	net.Conn
	net     *memNet
	from    string // this end
	to      string // the other; at an accepting end known after the first read
	dialled bool
	named   sync.Once
	close   sync.Once
	closed  chan struct{}
}

func (w *memWire) Read(p []byte) (int, error) {
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
func (w *memWire) readName() {
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

func (w *memWire) Write(p []byte) (int, error) {
	w.net.mu.Lock()
	cut := w.net.links[[2]string{w.from, w.to}]
	w.net.mu.Unlock()
	if cut {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

func (w *memWire) Close() error {
	w.close.Do(func() { close(w.closed) })
	return w.Conn.Close()
}
