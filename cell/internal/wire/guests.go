package wire

import (
	"net"
	"sync"

	"github.com/chubbylock/chubby/api"
)

// Guest is who speaks over a connection that reaches the services by another way than the port for clients: somebody for whom a
// replica's console speaks.
type Guest struct {
	// Address is where he is himself. His connections are bounded by it, and the audit log has it.
	Address net.Addr
	// Principal is who he is, as a replica has found out; empty where nobody is asked who he is.
	Principal string
	// Counts reports, without much effort, whether Principal counts still; nil if somebody else sees to that.
	Counts func() bool
}

// Guests is a listener that accepts the connections of guests. What bounds clients bounds them, too. It is safe for
// concurrent use.
type Guests struct {
	listener Listener
	arrived  chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

// NewGuests returns a listener of guests beside the one for clients.
func NewGuests(clients Listener) *Guests {
	return &Guests{listener: clients, arrived: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (g *Guests) Accept() (net.Conn, error) {
	select {
	case conn := <-g.arrived:
		return conn, nil
	case <-g.closed:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (g *Guests) Addr() net.Addr { return g.listener.Addr() }

// Close implements net.Listener.
func (g *Guests) Close() error {
	g.once.Do(func() { close(g.closed) })
	return nil
}

// Introduce has a connection served as one of a guest. The connection is the server's from then on, also if it is refused.
func (g *Guests) Introduce(conn net.Conn, who Guest) error {
	known := g.listener.Certificates != nil // else nobody is asked who he is
	if known {
		if err := CheckPrincipal(who.Principal); err != nil {
			_ = conn.Close() // nothing was said over it
			return err
		}
	}
	one := hear(guestConn{conn, who.Address}, g.listener)
	one.stream = one.Conn // what has to be encrypted is already
	if !g.listener.Connections.admit(one) {
		return api.Errorf(api.Unavailable, "the replica has too many connections")
	}
	if known {
		counts := who.Counts
		if counts == nil {
			counts = func() bool { return true }
		}
		one.identity.Store(&identity{principal: who.Principal, counts: counts})
		g.listener.Connections.knows(one, who.Principal)
	}
	select {
	case g.arrived <- one:
		return nil
	case <-g.closed:
		_ = one.Close() // nobody serves it
		return api.Errorf(api.Unavailable, "the replica is stopping")
	}
}

// guestConn is a connection that comes from where the guest is.
type guestConn struct {
	net.Conn
	from net.Addr
}

// RemoteAddr implements net.Conn.
func (c guestConn) RemoteAddr() net.Addr { return c.from }
