package cell

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/internal/certs"
)

// handshakeByte is the first byte of every TLS connection, and of no HTTP request.
const handshakeByte = 22

// sniffer is the listener of an http port with certificates and a console. Connections that begin with a TLS
// handshake are encrypted; others, of probes and Prometheus, are plain.
//
// Goroutines: one accepts, and each connection without a first byte has one, for httpHeaderTime at most. Close
// ends them, and all connections; wait waits for them.
type sniffer struct {
	*turnover
	certificates *certs.Store
	ready        chan net.Conn
	failed       chan error
	closed       chan struct{}
	work         sync.WaitGroup
	once         sync.Once
}

func newSniffer(t *turnover, certificates *certs.Store) *sniffer {
	s := &sniffer{turnover: t, certificates: certificates, ready: make(chan net.Conn), failed: make(chan error), closed: make(chan struct{})}
	s.work.Go(s.acceptAll)
	return s
}

// acceptAll accepts until the listener is closed. The listener below limits the connections.
func (s *sniffer) acceptAll() {
	for {
		conn, err := s.turnover.Accept()
		if err != nil {
			select {
			case s.failed <- err:
				continue // the server decides whether to go on, and closes the listener if not
			case <-s.closed:
				return
			}
		}
		s.work.Go(func() { s.sniff(conn) })
	}
}

// sniff waits for a connection's first byte, and hands the connection to Accept.
func (s *sniffer) sniff(conn net.Conn) {
	late := time.AfterFunc(httpHeaderTime, func() { _ = conn.Close() })
	first := &sniffedConn{Conn: conn}
	n, err := conn.Read(first.byte[:])
	if !late.Stop() || err != nil || n == 0 {
		_ = conn.Close() // nothing was sent
		return
	}
	var served net.Conn = first
	if first.byte[0] == handshakeByte {
		served = s.certificates.AcceptHTTP(first)
	}
	select {
	case s.ready <- served:
	case <-s.closed:
		_ = conn.Close()
	}
}

func (s *sniffer) Accept() (net.Conn, error) {
	select {
	case conn := <-s.ready:
		return conn, nil
	case err := <-s.failed:
		return nil, err
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *sniffer) Close() error {
	s.once.Do(func() { close(s.closed) })
	err := s.Listener.Close()
	s.mu.Lock()
	open := slices.Clone(s.open)
	s.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close() // its server, which closes this listener, is being closed, too
	}
	return err
}

func (s *sniffer) wait() { s.work.Wait() }

type sniffedConn struct {
	net.Conn
	byte [1]byte
	read bool // again; the reader's
}

func (c *sniffedConn) Read(p []byte) (int, error) {
	if c.read || len(p) == 0 {
		return c.Conn.Read(p)
	}
	c.read = true
	return copy(p, c.byte[:]), nil
}
