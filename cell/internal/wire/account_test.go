package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// Requests of which only a part was sent are held, and counted, as long as their client
// likes. A client that sends very many is closed; it could not be told anything.
func TestHalfSentRequestsAreBounded(t *testing.T) {
	limits := heldLimits{conn: 1 << 20, address: 1 << 30, all: 1 << 30}
	l := testbed.Loopback(t)
	conns := (&host{}).serve(t, l, limits)
	r := newRude(t, dialled(t, l))
	testbed.Await(t, "the connection", func() bool { return conns.Count() == 1 })
	const part = 48 << 10
	sent := 0
	for range 100 {
		stream := r.begin(pb.Chubby_SetContents_FullMethodName)
		if err := r.send(stream, append(announced(300<<10), make([]byte, part)...), false); err != nil {
			break
		}
		sent += part
		testbed.Await(t, "a part to be counted", func() bool { return conns.bytes.Load() >= int64(sent) || conns.Count() == 0 })
		if held := conns.bytes.Load(); held > overflow*limits.conn {
			t.Fatalf("%d bytes are held of one connection", held)
		}
		if conns.Count() == 0 {
			break
		}
	}
	if sent < int(limits.conn) || sent > 50*part {
		t.Errorf("%d bytes of half-sent requests were read", sent)
	}
	testbed.Await(t, "the connection to be closed", func() bool { return conns.Count() == 0 && conns.bytes.Load() == 0 })
}

// Of long replies that their client does not read few are held; to other calls the
// client is told why it gets none. When it reads, there is room again.
func TestUnreadRepliesAreBounded(t *testing.T) {
	limits := heldLimits{conn: 1 << 20, address: 1 << 30, all: 1 << 30}
	l := testbed.Loopback(t)
	conns := (&host{contents: make([]byte, api.MaxContents)}).serve(t, l, limits)
	r := newRude(t, dialled(t, l), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	var streams []uint32
	for range 20 {
		streams = append(streams, r.begin(pb.Chubby_GetContentsAndStat_FullMethodName))
		if err := r.send(streams[len(streams)-1], announced(0), true); err != nil {
			t.Fatal(err)
		}
	}
	unavailable := 0
	for unavailable < 15 { // five are under the limit, or reach it
		f, err := r.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		h, ok := f.(*http2.MetaHeadersFrame)
		if !ok {
			continue
		}
		for _, field := range h.RegularFields() {
			if field.Name == "grpc-status" && field.Value == "14" {
				unavailable++
			}
		}
	}
	if held := conns.bytes.Load(); held < limits.conn || held > overflow*limits.conn {
		t.Errorf("%d bytes are held", held)
	}
	for _, stream := range streams {
		if err := errors.Join(r.WriteWindowUpdate(0, 1<<20), r.WriteWindowUpdate(stream, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, r.conn) }() // it ends with the connection
	testbed.Await(t, "the replies to be gone", func() bool { return conns.bytes.Load() == 0 })
}

// Who waits for a lock is told of it again and again, and may read nothing.
func TestUnreadNewsOfALockIsBounded(t *testing.T) {
	h := &host{told: make(chan error, 1)}
	l := testbed.Loopback(t)
	conns := h.serve(t, l, heldLimits{conn: 1 << 20, address: 1 << 30, all: 1 << 30})
	r := newRude(t, dialled(t, l), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	stream := r.begin(pb.Chubby_Acquire_FullMethodName)
	if err := r.send(stream, announced(0), true); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-h.told:
		if !errors.Is(err, api.Uncertain) { // Unavailable would say that the lock is not held
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it is told more and more")
	}
	if held := conns.bytes.Load(); held > 4*smallCall {
		t.Errorf("%d bytes are held", held)
	}
}

// A request is held for as long as it is served, also when its client has given it up.
func TestCallsThatAreGivenUpAreHeldWhileTheyAreServed(t *testing.T) {
	h := &host{leave: make(chan struct{})}
	l := testbed.Loopback(t)
	conns := h.serve(t, l, heldLimits{conn: 1 << 20, address: 1 << 30, all: 1 << 30})
	r := newRude(t, dialled(t, l))
	const size = 40 << 10
	request, err := proto.Marshal(&pb.SetContentsRequest{Contents: make([]byte, size)})
	if err != nil {
		t.Fatal(err)
	}
	stream := r.begin(pb.Chubby_SetContents_FullMethodName)
	if err := r.send(stream, append(announced(len(request)), request...), true); err != nil {
		t.Fatal(err)
	}
	serving := func() bool {
		var some bool
		conns.mu.Lock()
		defer conns.mu.Unlock()
		for _, o := range conns.from {
			for a := range o.accounts {
				a.mu.Lock()
				for _, c := range a.calls {
					some = some || c.serving
				}
				a.mu.Unlock()
			}
		}
		return some
	}
	testbed.Await(t, "the call to be served", serving)
	if err := errors.Join(r.WriteRSTStream(stream, http2.ErrCodeCancel), r.settle()); err != nil {
		t.Fatal(err)
	}
	if held := conns.bytes.Load(); held < size {
		t.Errorf("%d bytes are counted of a request of %d that is being served", held, size)
	}
	close(h.leave)
	testbed.Await(t, "the call to end", func() bool { return conns.bytes.Load() == 0 })
}

// What has arrived of a request is held until its stream has ended: a handler that
// refuses it has not read everything, and the client may not read the refusal.
func TestRequestsAreHeldUntilTheirStreamsEnd(t *testing.T) {
	const size = 3 * 16 << 10
	c := newHeld(heldLimits{conn: 1 << 30, address: 1 << 30, all: 1 << 30})
	conn, _ := hoarding(t, c, "10.0.0.1:1", 3)
	one := conn.account.newest
	if err := one.serve(nil); err != nil {
		t.Fatal(err)
	}
	one.served()
	if held := c.bytes.Load(); held < size {
		t.Errorf("%d bytes are counted of a request of %d", held, size)
	}
	var wire bytes.Buffer
	if err := http2.NewFramer(&wire, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
	conn.account.sent(wire.Bytes())
	if held := c.bytes.Load(); held != 0 {
		t.Errorf("%d bytes are counted of a call that has ended", held)
	}
}

// A client that sends what has to be answered, and does not read the answers, makes
// gRPC keep what it sent. That is counted, and its connection closed.
func TestFloodOfAClientThatDoesNotRead(t *testing.T) {
	l := bufconn.Listen(4 << 10)
	conns := (&host{}).serve(t, l, heldLimits{conn: 256 << 10, address: 1 << 30, all: 1 << 30})
	conn, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := newRude(t, conn)
	many := make([]http2.Setting, 2000)
	for i := range many {
		many[i].ID = http2.SettingID(0x1000 + i)
	}
	sent := 0
	for ; sent < 2000; sent++ {
		if err := r.WriteSettings(many...); err != nil {
			break
		}
	}
	if sent == 2000 {
		t.Errorf("%d floods of settings were read, of which none could be answered; %d bytes are counted", sent, conns.bytes.Load())
	}
	testbed.Await(t, "the connection to be closed", func() bool { return conns.Count() == 0 && conns.bytes.Load() == 0 })
}

// A call is refused, and does not reach the master, while its connection holds as much
// as it may.
func TestCallsWithoutRoomAreRefused(t *testing.T) {
	h := &host{leave: make(chan struct{})}
	close(h.leave)
	l := testbed.Loopback(t)
	conns := h.serve(t, l, heldLimits{conn: 100 << 10, address: 1 << 30, all: 1 << 30})
	r := newRude(t, dialled(t, l))
	idle := r.begin(pb.Chubby_SetContents_FullMethodName)
	if err := r.send(idle, append(announced(300<<10), make([]byte, 60<<10)...), false); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]string{1 << 10: "0", 48 << 10: "14"} {
		request, err := proto.Marshal(&pb.SetContentsRequest{Contents: make([]byte, size)})
		if err != nil {
			t.Fatal(err)
		}
		stream := r.begin(pb.Chubby_SetContents_FullMethodName)
		if err := r.send(stream, append(announced(len(request)), request...), true); err != nil {
			t.Fatal(err)
		}
		if got := r.status(stream); got != want {
			t.Errorf("a call of %d bytes ended with status %s, want %s; %d bytes are held", size, got, want, conns.bytes.Load())
		}
	}
}

// gRPC that adapts its windows measures the network with pings, and makes the windows
// of a fast client larger.
func TestWindowsAreFixed(t *testing.T) {
	l := testbed.Loopback(t)
	(&host{}).serve(t, l, heldLimits{conn: 1 << 30, address: 1 << 30, all: 1 << 30})
	r := newRude(t, dialled(t, l))
	stream := r.begin(pb.Chubby_SetContents_FullMethodName)
	if err := errors.Join(r.send(stream, append(announced(300<<10), make([]byte, 48<<10)...), false), r.WritePing(false, [8]byte{1})); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := r.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if ping, ok := f.(*http2.PingFrame); ok {
			if !ping.IsAck() {
				t.Error("the replica measures the network")
			}
			return
		}
	}
}

func TestLongRepliesTakeTheirSize(t *testing.T) {
	data, err := exactCodec{encoding.GetCodecV2("proto")}.Marshal(&pb.GetContentsAndStatReply{Contents: make([]byte, api.MaxContents)})
	if err != nil {
		t.Fatal(err)
	}
	if took := cap(data[0].ReadOnlyData()); took > api.MaxContents*5/4 {
		t.Errorf("a reply with %d bytes takes %d", api.MaxContents, took)
	}
}

// half returns what arrives of calls whose requests are n frames of 16 KiB, and go on.
func half(t interface{ Fatal(...any) }, n int) []byte {
	var wire bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&wire, nil)
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x83}, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := f.WriteData(1, false, make([]byte, 16<<10)); err != nil {
			t.Fatal(err)
		}
	}
	return wire.Bytes()
}

// hoarding opens a connection whose calls hold n times 16 KiB, and its own weight.
func hoarding(t *testing.T, c *Connections, from string, n int) (*heardConn, *fromConn) {
	t.Helper()
	wire := &fromConn{from: from}
	conn := hear(wire, testbed.Clock())
	if !c.admit(conn) || conn.refusal != nil {
		t.Fatal("refused")
	}
	conn.account.received(half(t, n))
	return conn, wire
}

// When too much is held, those who hold most give it back: of the address that holds
// too much, or, if all hold too much, of the one that holds most.
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
				if err := http2.NewFramer(&frame, nil).WriteData(1, false, make([]byte, piece)); err != nil {
					t.Fatal(err)
				}
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
			if held := c.bytes.Load(); held != 0 || len(c.from) != 0 {
				t.Errorf("%d bytes of %d addresses are counted", held, len(c.from))
			}
		})
	}
}

// No more connections are closed than have to be, also when calls are being served,
// which are held until they have been.
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
				if err := conn.account.newest.serve(&pb.KeepAliveRequest{}); err != nil {
					t.Fatal(err)
				}
			}
			var frame bytes.Buffer
			if err := http2.NewFramer(&frame, nil).WriteData(1, false, make([]byte, piece)); err != nil {
				t.Fatal(err)
			}
			conns[1].account.received(bytes.Repeat(frame.Bytes(), 6))
			for i, wire := range wires {
				if closed := i == 1; (wire.closed > 0) != closed {
					t.Errorf("%s was closed %d times", wire.from, wire.closed)
				}
			}
			if held := c.bytes.Load(); held < 42*piece {
				t.Errorf("%d bytes are counted while all is being served", held)
			}
			for i, conn := range conns {
				_ = conn.Close()
				calls[i].served()
			}
			if held, ending := c.bytes.Load(), c.ending.Load(); held != 0 || ending != 0 || len(c.from) != 0 {
				t.Errorf("%d bytes, %d of closed connections, of %d addresses are counted", held, ending, len(c.from))
			}
		})
	}
}

// While all hold too much, calls from an address that holds less than its share are
// served.
func TestThoseWhoHoldLittleAreServed(t *testing.T) {
	c := newHeld(heldLimits{conn: 1 << 30, address: 1 << 30, all: 200 << 10})
	greedy, _ := hoarding(t, c, "10.0.0.1:1", 16)
	modest, _ := hoarding(t, c, "10.0.0.2:1", 3) // more than each connection may anyway
	for _, test := range []struct {
		conn *heardConn
		code api.Code
	}{{greedy, api.Unavailable}, {modest, api.OK}} {
		if err := test.conn.account.newest.serve(nil); api.CodeOf(err) != test.code {
			t.Errorf("a call from %s: %v", test.conn.Conn.RemoteAddr(), err)
		}
	}
}

// Whatever others hold, and the connection itself, sessions are kept alive; and a
// connection that holds next to nothing is served.
func TestKeepAlivesAreServed(t *testing.T) {
	c := newHeld(heldLimits{conn: 64 << 10, address: 128 << 10, all: 128 << 10})
	greedy, _ := hoarding(t, c, "10.0.0.1:1", 7)
	modest, _ := hoarding(t, c, "10.0.0.1:2", 1)
	alive := &pb.KeepAliveRequest{Caller: &pb.Caller{Session: make([]byte, 30)}, Received: 1}
	for _, test := range []struct {
		conn    *heardConn
		request any
		code    api.Code
	}{
		{greedy, alive, api.OK},
		{greedy, &pb.KeepAliveRequest{Caller: &pb.Caller{Session: make([]byte, 2<<10)}}, api.InvalidArgument},
		{greedy, &pb.OpenRequest{}, api.Unavailable},
		{modest, &pb.OpenRequest{}, api.OK},
		{greedy, &pb.LocateRequest{Cell: "local"}, api.OK}, // or nobody would know whom to send a KeepAlive
		{greedy, &pb.ReleaseRequest{Mutation: &pb.Mutation{Outstanding: make([]uint64, api.MaxOutstanding)}}, api.OK},
		{greedy, &pb.ReleaseRequest{Handle: make([]byte, 5<<10)}, api.Unavailable},
		{greedy, &pb.CancelRequest{}, api.OK},
		{greedy, &pb.CloseRequest{}, api.OK},
		{greedy, &pb.EndSessionRequest{}, api.OK},
	} {
		if err := test.conn.account.newest.serve(test.request); api.CodeOf(err) != test.code {
			t.Errorf("%T over %s: %v", test.request, test.conn.Conn.RemoteAddr(), err)
		}
	}
}

// A session is kept alive that has much to be told, while others of its connection, or
// of its address, take all the room there is for long replies.
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
		if err := one.answer(&pb.GetContentsAndStatReply{Contents: make([]byte, 20<<10)}); !errors.Is(err, api.Unavailable) {
			t.Errorf("the limit %s: a long reply: %v", name, err)
		}
		if err := one.answer(&pb.KeepAliveReply{Events: told}); err != nil {
			t.Errorf("the limit %s: the reply to a KeepAlive: %v", name, err)
		}
	}
}

// A connection that holds too much for another file is told so, and its small calls are
// served all the same.
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
	if err := large.serve(nil); !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "this connection") {
		t.Error(err)
	}
	if err := conn.account.newest.serve(nil); err != nil {
		t.Error(err)
	}
}

// TestHeldIsWhatIsOpen has frames pass at random, cut anywhere, and compares what is
// held with a count made anew.
func TestHeldIsWhatIsOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newHeld(heldLimits{conn: 1 << 40, address: 1 << 40, all: 1 << 40})
		conn := hear(&fromConn{from: "10.0.0.1:1"}, testbed.Clock())
		if !c.admit(conn) {
			t.Fatal("refused")
		}
		a := conn.account
		pass := func(to func([]byte), frames []byte) {
			for len(frames) > 0 {
				n := rapid.IntRange(1, len(frames)).Draw(t, "cut")
				to(frames[:n])
				frames = frames[n:]
			}
		}
		pass(a.received, []byte(http2.ClientPreface))
		type twin struct {
			call           *call
			request, reply int64
			open, serving  bool
		}
		var all []*twin
		for range 60 {
			var wire bytes.Buffer
			f := http2.NewFramer(&wire, nil)
			f.AllowIllegalWrites = true
			step := rapid.IntRange(0, 6).Draw(t, "step")
			if step == 0 || len(all) == 0 {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*len(all) + 1), BlockFragment: make([]byte, 10), EndHeaders: true})
				pass(a.received, wire.Bytes())
				all = append(all, &twin{call: a.newest, request: callWeight, open: true})
				continue
			}
			i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
			one, stream := all[i], uint32(2*i+1)
			size := rapid.IntRange(1, 16<<10).Draw(t, "size")
			switch step {
			case 1: // the request goes on
				_ = f.WriteData(stream, false, make([]byte, size))
				pass(a.received, wire.Bytes())
				if one.open {
					one.request += dataWeight(size)
				}
			case 2: // either side resets it, or the reply ends
				to := a.received
				switch rapid.IntRange(0, 2).Draw(t, "how") {
				case 0:
					to = a.sent
					_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: make([]byte, 10), EndHeaders: true, EndStream: true})
				case 1:
					to = a.sent
					fallthrough
				default:
					_ = f.WriteRSTStream(stream, 0)
				}
				pass(to, wire.Bytes())
				one.open, one.reply = false, 0
			case 3:
				if err := one.call.serve(nil); (err == nil) != one.open {
					t.Fatalf("a call that is open: %v; served: %v", one.open, err)
				}
				one.serving = one.serving || one.open
			case 4:
				one.call.served()
				one.serving = false
			case 5:
				before := one.call.reply
				if one.call.answer(&pb.GetContentsAndStatReply{Contents: make([]byte, size)}) == nil && one.open {
					one.reply += one.call.reply - before
				}
			case 6:
				_ = f.WriteData(stream, false, make([]byte, size))
				pass(a.sent, wire.Bytes())
				one.reply -= min(one.reply, int64(size))
			}
			want := int64(0)
			for _, one := range all {
				if one.open || one.serving {
					want += one.request + one.reply
				}
			}
			if c.bytes.Load() != want || a.bytes != want || a.origin.bytes.Load() != want {
				t.Fatalf("after step %d: %d, %d, %d are counted, want %d", step, c.bytes.Load(), a.bytes, a.origin.bytes.Load(), want)
			}
		}
		_ = conn.Close()
		for _, one := range all {
			one.call.served()
		}
		if c.bytes.Load() != 0 || c.ending.Load() != 0 || len(c.from) != 0 {
			t.Fatalf("all has ended, and %d bytes of %d addresses are counted", c.bytes.Load(), len(c.from))
		}
	})
}
