package wire

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/origin"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
	"golang.org/x/net/http2"
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

// half returns the received part of calls whose requests are n frames of 16 KiB, and go on.
func half(t testing.TB, n int) []byte {
	var wire bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&wire, nil)
	testbed.NoErr(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x83}, EndHeaders: true}))
	for range n {
		testbed.NoErr(t, f.WriteData(1, false, make([]byte, 16<<10)))
	}
	return wire.Bytes()
}

// hoarding opens a connection whose calls hold n times 16 KiB, plus its own
// weight.
func hoarding(t *testing.T, c *Connections, from string, n int) (*heardConn, *fromConn) {
	t.Helper()
	wire := &fromConn{from: from}
	conn := hear(wire, Listener{Clock: testbed.Clock()})
	if !c.admit(conn) || conn.refusal != nil {
		t.Fatal("refused")
	}
	conn.account.received(half(t, n))
	return conn, wire
}

// admitted has the newest call of a connection served, if it may be.
func admitted(conn *heardConn, method string, bytes int) error {
	c := conn.account.newest
	c.rpc = rpcs()[method]
	return c.admit(requestSize{bytes: bytes})
}

// When too much is held, connections of the address that holds too much are closed or, if all
// addresses together hold too much, those of the address that holds most.
func TestWhoHoldsMostIsClosed(t *testing.T) {
	const piece = 16 << 10
	for name, test := range map[string]struct {
		limits heldLimits
		closed string
	}{
		"of an address": {limits: heldLimits{conn: 1 << 30, address: 20 * piece, all: 1 << 30}, closed: "10.0.0.1:2"},
		"in all":        {limits: heldLimits{conn: 1 << 30, address: 1 << 30, all: 30 * piece}, closed: "10.0.0.1:2"},
		"of one":        {limits: heldLimits{conn: 10 * piece, address: 1 << 30, all: 1 << 30}, closed: "10.0.0.1:2"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newHeld(test.limits)
			var conns []*heardConn
			var wires []*fromConn
			for _, one := range []struct {
				from string
				n    int
			}{{"10.0.0.1:1", 15}, {"10.0.0.1:2", 17}, {"10.0.0.1:3", 15}, {"10.0.0.2:1", 19}} {
				conn, wire := hoarding(t, c, one.from, one.n)
				conns, wires = append(conns, conn), append(wires, wire)
			}
			if name == "of one" {
				var frame bytes.Buffer
				testbed.NoErr(t, http2.NewFramer(&frame, nil).WriteData(1, false, make([]byte, piece)))
				conns[1].account.received(bytes.Repeat(frame.Bytes(), 4))
			}
			for _, wire := range wires {
				if (wire.closed > 0) != (wire.from == test.closed) {
					t.Errorf("%s was closed %d times", wire.from, wire.closed)
				}
			}
			for _, conn := range conns {
				_ = conn.Close()
			}
			if held := c.bytes.Load(); held != 0 || len(c.from.here) != 0 {
				t.Errorf("%d bytes of %d addresses are counted", held, len(c.from.here))
			}
		})
	}
}

// No more connections are closed than necessary, even while their calls are
// being served; these are held until they have ended.
func TestOneIsClosedForAllThatAreServed(t *testing.T) {
	const piece = 16 << 10
	for name, limits := range map[string]heldLimits{
		"of an address": {conn: 1 << 30, address: 20 * piece, all: 1 << 30},
		"in all":        {conn: 1 << 30, address: 1 << 30, all: 20 * piece},
	} {
		t.Run(name, func(t *testing.T) {
			c := newHeld(limits)
			var conns []*heardConn
			var wires []*fromConn
			var calls []*call
			for _, from := range []string{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"} {
				conn, wire := hoarding(t, c, from, 12)
				conns, wires, calls = append(conns, conn), append(wires, wire), append(calls, conn.account.newest)
				testbed.NoErr(t, admitted(conn, pb.Chubby_KeepAlive_FullMethodName, 0))
			}
			var frame bytes.Buffer
			testbed.NoErr(t, http2.NewFramer(&frame, nil).WriteData(1, false, make([]byte, piece)))
			conns[1].account.received(bytes.Repeat(frame.Bytes(), 6))
			for i, wire := range wires {
				if closed := i == 1; (wire.closed > 0) != closed {
					t.Errorf("%s was closed %d times", wire.from, wire.closed)
				}
			}
			if held := c.bytes.Load(); held < 42*piece {
				t.Errorf("%d bytes are counted while every call is being served", held)
			}
			for i, conn := range conns {
				_ = conn.Close()
				calls[i].served()
			}
			if held, ending := c.bytes.Load(), c.ending.Load(); held != 0 || ending != 0 || len(c.from.here) != 0 {
				t.Errorf("%d bytes, %d of closed connections, of %d addresses are counted", held, ending, len(c.from.here))
			}
		})
	}
}

// While all addresses together hold too much, calls from an address that holds
// less than its share are served.
func TestThoseWhoHoldLittleAreServed(t *testing.T) {
	c := newHeld(heldLimits{conn: 1 << 30, address: 1 << 30, all: 200 << 10})
	greedy, _ := hoarding(t, c, "10.0.0.1:1", 16)
	modest, _ := hoarding(t, c, "10.0.0.2:1", 3) // more than each connection may always hold
	for _, test := range []struct {
		conn *heardConn
		code api.Code
	}{{greedy, api.Unavailable}, {modest, api.OK}} {
		if err := test.conn.account.newest.admit(requestSize{}); api.CodeOf(err) != test.code {
			t.Errorf("a call from %s: %v", test.conn.Conn.RemoteAddr(), err)
		}
	}
}

// Whatever other connections and the connection itself hold, KeepAlives are
// served, and so is a connection that holds next to nothing.
func TestKeepAlivesAreServed(t *testing.T) {
	c := newHeld(heldLimits{conn: 64 << 10, address: 128 << 10, all: 128 << 10})
	greedy, _ := hoarding(t, c, "10.0.0.1:1", 7)
	modest, _ := hoarding(t, c, "10.0.0.1:2", 1)
	for _, test := range []struct {
		conn   *heardConn
		method string
		bytes  int
		code   api.Code
	}{
		{greedy, pb.Chubby_KeepAlive_FullMethodName, 50, api.OK},
		{greedy, pb.Chubby_KeepAlive_FullMethodName, 2 << 10, api.InvalidArgument},
		{greedy, pb.Chubby_Open_FullMethodName, 0, api.Unavailable},
		{modest, pb.Chubby_Open_FullMethodName, 0, api.OK},
		{greedy, pb.Cell_Locate_FullMethodName, 5, api.OK}, // otherwise a client could not find the master for its KeepAlives
		{greedy, pb.Chubby_Release_FullMethodName, 10 * api.MaxOutstanding, api.OK},
		{greedy, pb.Chubby_Release_FullMethodName, 5 << 10, api.Unavailable},
		{greedy, pb.Chubby_Cancel_FullMethodName, 0, api.OK},
		{greedy, pb.Chubby_CloseHandle_FullMethodName, 0, api.OK},
		{greedy, pb.Chubby_EndSession_FullMethodName, 0, api.OK},
	} {
		if err := admitted(test.conn, test.method, test.bytes); api.CodeOf(err) != test.code {
			t.Errorf("%s over %s: %v", test.method, test.conn.Conn.RemoteAddr(), err)
		}
	}
}

// A session with many events is kept alive, while others of its connection, or of its address, use
// all the room for long replies.
func TestLongRepliesToKeepAlivesAreSent(t *testing.T) {
	told := make([]*pb.Event, 200)
	for i := range told {
		told[i] = &pb.Event{Path: strings.Repeat("x", 200)}
	}
	for name, limits := range map[string]heldLimits{
		"of a connection": {conn: 64 << 10, address: 1 << 30, all: 1 << 30},
		"of an address":   {conn: 1 << 30, address: 64 << 10, all: 1 << 30},
		"of all":          {conn: 1 << 30, address: 1 << 30, all: 64 << 10},
	} {
		c := newHeld(limits)
		conn, _ := hoarding(t, c, "10.0.0.1:1", 5)
		one := conn.account.newest
		if err := one.countReply(&pb.GetContentsAndStatReply{Contents: make([]byte, 20<<10)}); !errors.Is(err, api.Uncertain) {
			t.Errorf("the limit %s: a long reply: %v", name, err)
		}
		if err := one.countReply(&pb.KeepAliveReply{Events: told}); err != nil {
			t.Errorf("the limit %s: the reply to a KeepAlive: %v", name, err)
		}
	}
}

// A connection that holds too much for another file gets an error that says so, and its small calls
// are still served.
func TestSmallCallsAreServedBesideLargeOnes(t *testing.T) {
	c := newHeld(heldLimits{conn: 100 << 10, address: 1 << 30, all: 1 << 30})
	conn, _ := hoarding(t, c, "10.0.0.1:1", 8)
	large := conn.account.newest
	conn.account.received(func() []byte {
		var wire bytes.Buffer
		if err := http2.NewFramer(&wire, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x83}, EndHeaders: true, EndStream: true}); err != nil {
			t.Fatal(err)
		}
		return wire.Bytes()
	}())
	if err := large.admit(requestSize{}); !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "this connection") {
		t.Error(err)
	}
	testbed.Report(t, conn.account.newest.admit(requestSize{}))
}
