package wire

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/internal/origin"
	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
)

// untold is for those who need not be told.
func untold() Told { return Told{Refused: func() {}, Shed: func() {}, Late: func() {}} }

type namedAddr string

func (a namedAddr) Network() string { return "test" }
func (a namedAddr) String() string  { return string(a) }

// fromConn is a connection from an address that carries no data.
type fromConn struct {
	net.Conn
	from   string
	closed int
}

func (c *fromConn) RemoteAddr() net.Addr { return namedAddr(c.from) }
func (c *fromConn) Close() error         { c.closed++; return nil }

// TestConnectionsAreCounted opens and closes connections at random and compares with a recount. A
// connection is admitted if there is room in total and for its address; otherwise it is kept for an
// error, or closed. Closed connections, even if closed twice, are not counted.
func TestConnectionsAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewConnections(Bounds{Connections: rapid.IntRange(1, 100).Draw(t, "all"), PerAddress: rapid.IntRange(1, 50).Draw(t, "each")}, untold(), slog.New(slog.DiscardHandler))
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var open []*heardConn
		from, admitted, refused := map[string]int{}, 0, 0
		for round := range 400 {
			if len(open) > 0 && random.IntN(3) == 0 {
				n := random.IntN(len(open))
				one := open[n]
				open = append(open[:n], open[n+1:]...)
				for range 1 + random.IntN(2) {
					_ = one.Close()
				}
				if one.refusal != nil {
					refused--
				} else {
					admitted--
					from[origin.Of(one.Conn.RemoteAddr().String())]--
				}
				continue
			}
			wire := &fromConn{from: fmt.Sprintf("10.0.0.%d:1", random.IntN(4))}
			one := hear(wire, Listener{Clock: func() session.Instant { return session.Instant(round) * session.Instant(time.Second) }})
			room := admitted < c.bounds.Connections && from[origin.Of(wire.RemoteAddr().String())] < c.bounds.PerAddress
			served := c.admit(one)
			switch {
			case served != (room || refused < MaxRefused) || room != (served && one.refusal == nil) || served == (wire.closed > 0):
				t.Fatalf("with %d connections, %v, and %d refused: room %v, served %v, %v", admitted, from, refused, room, served, one.refusal)
			case room:
				admitted++
				from[origin.Of(wire.RemoteAddr().String())]++
			case served:
				refused++
			}
			if served {
				open = append(open, one)
			}
			if c.Count() != admitted || c.refused != refused {
				t.Fatalf("%d and %d refused are counted; there are %d and %d", c.Count(), c.refused, admitted, refused)
			}
		}
		for _, one := range open {
			_ = one.Close()
		}
		if c.open != 0 || len(c.from.here) != 0 || c.refused != 0 {
			t.Fatalf("every connection is closed, and %d, %v and %d are counted", c.open, c.from.here, c.refused)
		}
	})
}
