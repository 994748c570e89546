package cell

import (
	"net"
	"sync"

	"github.com/chubbylock/chubby/cell/internal/wire"
)

// maxHTTPConns limits the connections of the http port. A scrape or health check takes milliseconds.
const maxHTTPConns = 256

// turnover is a listener with a limit of connections: for one more it closes the oldest. So a flood of
// connections, each idle for up to a minute, does not block the files of the log and the snapshots, or health
// checks.
type turnover struct {
	net.Listener
	most int

	mu   sync.Mutex // guards open
	open []*turnoverConn
}

type turnoverConn struct {
	net.Conn
	of *turnover
}

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
		_ = oldest.Close() // its server notices
	}
	return c, nil
}

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
