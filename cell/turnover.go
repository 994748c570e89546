package cell

import (
	"net"
	"sync"

	"github.com/chubbylock/chubby/cell/internal/wire"
)

// maxHTTPConns bounds the connections of the http port. A scrape or a health check
// takes milliseconds.
const maxHTTPConns = 256

// turnover is a listener that keeps a bounded number of connections: for one more, the
// oldest is closed. So a flood of connections, each of which may be idle for a minute,
// takes neither the file descriptors that the log and the snapshots need, nor the
// place of a health check that comes meanwhile.
type turnover struct {
	net.Listener
	most int

	mu   sync.Mutex // guards open
	open []*turnoverConn
}

// turnoverConn is a connection that its listener knows until it is closed.
type turnoverConn struct {
	net.Conn
	of *turnover
}

// Accept implements net.Listener.
func (t *turnover) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, wire.AcceptError{Err: err}
	}
	c := &turnoverConn{Conn: conn, of: t}
	t.mu.Lock()
	t.open = append(t.open, c)
	var oldest *turnoverConn
	if len(t.open) > t.most {
		oldest = t.open[0]
	}
	t.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close() // its server finds out
	}
	return c, nil
}

// Close implements net.Conn.
func (c *turnoverConn) Close() error {
	c.of.mu.Lock()
	for i, one := range c.of.open {
		if one == c {
			c.of.open = append(c.of.open[:i], c.of.open[i+1:]...)
			break
		}
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}
