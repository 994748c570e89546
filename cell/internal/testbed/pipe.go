package testbed

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// The connections of a Network. They start no timer before a deadline is set, as those of gRPC's bufconn do: in a
// testing/synctest bubble a timer that is due at once fires within the call that makes it, and Go 1.27's race detector
// crashes there now and then.

// pipeSize is how many bytes one direction of a connection holds, as the socket buffers of an operating system do.
const pipeSize = 256 << 10

// acceptor hands connections from those who dial to the one who accepts.
type acceptor struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newAcceptor() *acceptor {
	return &acceptor{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept implements net.Listener.
func (a *acceptor) Accept() (net.Conn, error) {
	select {
	case <-a.done:
		return nil, net.ErrClosed
	case c := <-a.conns:
		return c, nil
	}
}

// Close implements net.Listener.
func (a *acceptor) Close() error {
	a.once.Do(func() { close(a.done) })
	return nil
}

// Addr implements net.Listener.
func (a *acceptor) Addr() net.Addr { return address("") }

// dial waits until the other side accepts, or ctx ends.
func (a *acceptor) dial(ctx context.Context) (net.Conn, error) {
	there, back := newPipe(), newPipe()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-a.done:
		return nil, net.ErrClosed
	case a.conns <- &pipeConn{in: there, out: back}:
		return &pipeConn{in: back, out: there}, nil
	}
}

// pipe is one direction of a connection.
type pipe struct {
	mu      sync.Mutex    // guards what follows
	data    []byte        // written, and not read yet
	ended   bool          // nobody writes any more
	broken  bool          // nobody reads any more
	changed chan struct{} // closed at the next change
}

func newPipe() *pipe { return &pipe{changed: make(chan struct{})} }

// change makes a change, and wakes those who wait for one.
func (p *pipe) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	p.wake()
}

// wake wakes those who wait for a change. p.mu is held.
func (p *pipe) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// try moves bytes if some can be moved now: n is 0 without an error if the caller has to wait for changed.
func (p *pipe) try(move func() (int, error)) (n int, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, err = move(); n > 0 {
		p.wake()
	}
	return n, p.changed, err
}

// await moves bytes as soon as some can be moved, unless the deadline passes first.
func (p *pipe) await(d *deadline, move func() (int, error)) (int, error) {
	for {
		passed := d.wait()
		select {
		case <-passed:
			return 0, os.ErrDeadlineExceeded
		default:
		}
		n, changed, err := p.try(move)
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-changed:
		case <-passed:
		}
	}
}

// pipeConn is one end of a connection.
type pipeConn struct {
	in, out         *pipe
	reading, writes deadline
}

// Read implements net.Conn.
func (c *pipeConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return c.in.await(&c.reading, func() (int, error) {
		switch {
		case c.in.broken:
			return 0, net.ErrClosed
		case len(c.in.data) == 0 && c.in.ended:
			return 0, io.EOF
		}
		n := copy(b, c.in.data)
		c.in.data = c.in.data[n:]
		return n, nil
	})
}

// Write implements net.Conn.
func (c *pipeConn) Write(b []byte) (written int, err error) {
	for len(b) > 0 && err == nil {
		var n int
		n, err = c.out.await(&c.writes, func() (int, error) {
			switch {
			case c.out.ended:
				return 0, net.ErrClosed
			case c.out.broken:
				return 0, io.ErrClosedPipe
			}
			n := min(len(b), pipeSize-len(c.out.data))
			c.out.data = append(c.out.data, b[:n]...)
			return n, nil
		})
		written, b = written+n, b[n:]
	}
	return written, err
}

// Close implements net.Conn. The other end reads what was written before.
func (c *pipeConn) Close() error {
	c.in.change(func() { c.in.broken, c.in.data = true, nil })
	c.out.change(func() { c.out.ended = true })
	return nil
}

// LocalAddr implements net.Conn.
func (c *pipeConn) LocalAddr() net.Addr { return address("") }

// RemoteAddr implements net.Conn.
func (c *pipeConn) RemoteAddr() net.Addr { return address("") }

// SetDeadline implements net.Conn.
func (c *pipeConn) SetDeadline(t time.Time) error {
	c.reading.set(t)
	c.writes.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *pipeConn) SetReadDeadline(t time.Time) error {
	c.reading.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *pipeConn) SetWriteDeadline(t time.Time) error {
	c.writes.set(t)
	return nil
}

// deadline is the time from which on reads, or writes, fail. The zero value never comes.
type deadline struct {
	mu     sync.Mutex // guards what follows
	timer  *time.Timer
	passed chan struct{} // closed when it has passed; nil before the first one
}

// set replaces the deadline, also for those who wait now.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.passed // it fires: not on the next channel
	}
	d.timer = nil
	select {
	case <-d.passed:
		d.passed = nil
	default:
	}
	if d.passed == nil {
		d.passed = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	if left, passed := time.Until(t), d.passed; left > 0 {
		d.timer = time.AfterFunc(left, func() { close(passed) })
		return
	}
	close(d.passed)
}

// wait returns what is closed when the deadline has passed.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.passed == nil {
		d.passed = make(chan struct{})
	}
	return d.passed
}
