package memnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipeBuffer is how many bytes can be under way in one direction before a
// writer waits, as in the buffers of a socket.
const pipeBuffer = 64 << 10

// listener is an address for connections in memory.
type listener struct {
	network *Network
	address string
	conns   chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Addr returns the address.
func (l *listener) Addr() net.Addr { return name(l.address) }

// Close closes the listener; its address can be listened on again.
func (l *listener) Close() error {
	l.network.mu.Lock()
	if l.network.listeners[l.address] == l {
		delete(l.network.listeners, l.address)
	}
	l.network.mu.Unlock()
	l.once.Do(func() { close(l.closed) })
	return nil
}

// dial connects from a host, as soon as the other side accepts.
func (l *listener) dial(ctx context.Context, from string) (*pipe, error) {
	here, there := newPipe(name(from), name(l.address))
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, fmt.Errorf("memnet: dial %s: %w", l.address, syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Pipe returns the two ends of a connection between two addresses, of no network.
func Pipe(from, to string) (here, there net.Conn) { return newPipe(name(from), name(to)) }

func newPipe(from, to name) (here, there *pipe) {
	up, down := newStream(), newStream()
	return &pipe{in: down, out: up, local: from, remote: to}, &pipe{in: up, out: down, local: to, remote: from}
}

// pipe is one end of a connection.
//
// It is not grpc's bufconn, whose connections begin with timers of no length:
// in a synctest bubble the runtime of Go 1.26 runs such a timer at once, on the
// goroutine that makes it, and under the race detector two of them at the same
// time crash the process (go.dev/issue/78156).
type pipe struct {
	in, out       *stream
	local, remote name
}

var _ net.Conn = (*pipe)(nil)

// Read implements net.Conn.
func (p *pipe) Read(b []byte) (int, error) { return p.in.read(b) }

// Write implements net.Conn.
func (p *pipe) Write(b []byte) (int, error) { return p.out.write(b) }

// Close implements net.Conn.
func (p *pipe) Close() error {
	p.in.close(false)
	p.out.close(true)
	return nil
}

// LocalAddr implements net.Conn.
func (p *pipe) LocalAddr() net.Addr { return p.local }

// RemoteAddr implements net.Conn.
func (p *pipe) RemoteAddr() net.Addr { return p.remote }

// SetDeadline implements net.Conn.
func (p *pipe) SetDeadline(at time.Time) error {
	return errors.Join(p.SetReadDeadline(at), p.SetWriteDeadline(at))
}

// SetReadDeadline implements net.Conn.
func (p *pipe) SetReadDeadline(at time.Time) error { p.in.setDeadline(&p.in.reader, at); return nil }

// SetWriteDeadline implements net.Conn.
func (p *pipe) SetWriteDeadline(at time.Time) error { p.out.setDeadline(&p.out.writer, at); return nil }

// stream is one direction of a connection.
type stream struct {
	mu      sync.Mutex // guards the fields below
	changed sync.Cond
	data    []byte
	ended   bool // by the writer; data that is there can still be read
	refused bool // by the reader
	lost    bool // what is written from now on never arrives
	frozen  bool // nothing arrives, neither data nor the end, and a writer does not see the refusal
	reader  deadline
	writer  deadline
}

// deadline is until when one side waits.
type deadline struct {
	timer *time.Timer // nil without one; a late timer of an earlier setting does nothing
	over  bool
}

func newStream() *stream {
	s := &stream{}
	s.changed.L = &s.mu
	return s
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.refused:
			return 0, net.ErrClosed
		case s.reader.over:
			return 0, os.ErrDeadlineExceeded
		case s.frozen:
		case len(s.data) > 0:
			n := copy(b, s.data)
			s.data = s.data[n:]
			s.changed.Broadcast()
			return n, nil
		case s.ended:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(b []byte) (written int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.ended:
			return written, net.ErrClosed
		case s.refused && !s.frozen:
			return written, io.ErrClosedPipe
		case s.writer.over:
			return written, os.ErrDeadlineExceeded
		case len(b) == 0:
			return written, nil
		case s.lost:
			return written + len(b), nil
		case len(s.data) < pipeBuffer:
			n := min(len(b), pipeBuffer-len(s.data))
			s.data = append(s.data, b[:n]...)
			b, written = b[n:], written+n
			s.changed.Broadcast()
			continue
		}
		s.changed.Wait()
	}
}

// set says whether the stream is frozen, and whether what is written gets lost.
func (s *stream) set(frozen, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen, s.lost = frozen, lost
	if s.refused {
		s.data = nil
	}
	s.changed.Broadcast()
}

// awaitThaw waits while the stream is frozen. It returns false if the reader
// closed the stream.
func (s *stream) awaitThaw() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.frozen && !s.refused {
		s.changed.Wait()
	}
	return !s.refused
}

// close ends the stream from its writer's or its reader's side.
func (s *stream) close(writer bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if writer {
		s.ended = true
	} else {
		s.refused, s.data = true, nil
	}
	for _, d := range []*deadline{&s.reader, &s.writer} {
		if d.timer != nil && (s.ended && s.refused) {
			d.timer.Stop()
		}
	}
	s.changed.Broadcast()
}

// setDeadline makes one side's calls fail after that time; the zero time means
// never.
func (s *stream) setDeadline(d *deadline, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.over = nil, false
	if at.IsZero() {
		return
	}
	left := time.Until(at)
	if left <= 0 {
		d.over = true
		s.changed.Broadcast()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.timer == timer {
			d.over = true
			s.changed.Broadcast()
		}
	})
	d.timer = timer
}
