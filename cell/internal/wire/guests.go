package wire

import (
	"net"
	"sync"

	"github.com/chubbylock/chubby/api"
)

// Guest is a client behind a replica's console. Its connection does not use the client port.
type Guest struct {
	// Address is the guest's own, for limits and the audit log.
	Address net.Addr
	// Principal is the guest's identity, found by a replica; empty if clients are not identified.
	Principal string
	// Counts reports cheaply whether Principal is still valid; nil if the caller checks that.
	Counts func() bool
}

// Guests is a listener for the connections of guests. Clients' limits apply. It is safe for concurrent use.
type Guests struct {
	listener Listener
	arrived  chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

// NewGuests returns a listener for guests beside the one for clients.
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

// Introduce serves a guest's connection. The server owns it from then on, even if it refuses it.
func (g *Guests) Introduce(conn net.Conn, who Guest) error {
	known := g.listener.Certificates != nil // else clients are not identified
	if known {
		if err := CheckPrincipal(who.Principal); err != nil {
			_ = conn.Close() // nothing was sent over it
			return err
		}
	}
	one := hear(guestConn{conn, who.Address}, g.listener)
	one.stream = one.Conn // the console has encrypted what must be
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
		_ = one.Close() // nothing serves it
		return api.Errorf(api.Unavailable, "the replica is stopping")
	}
}

// guestConn is a connection with the guest's address.
type guestConn struct {
	net.Conn
	from net.Addr
}

func (c guestConn) RemoteAddr() net.Addr { return c.from }
