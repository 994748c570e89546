package wire

import (
	"bytes"
	"errors"
	"io"
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

// Partly sent requests are held, and counted, until their client ends them. The connection of a
// client that sends very many is closed; it could not receive an error.
func TestHalfSentRequestsAreBounded(t *testing.T) {
	limits := heldLimits{conn: 1 << 20, address: 1 << 30, all: 1 << 30}
	l := testbed.Loopback(t)
	conns := (&host{}).serve(t, l, limits)
	r := newRude(t, dialled(t, l))
	testbed.Await(t, "the connection", func() bool { return conns.Count() == 1 })
	const part = 48 << 10
	sent := 0
	for range 100 {
		stream, err := r.tryBegin(pb.Chubby_SetContents_FullMethodName)
		if err == nil {
			err = r.send(stream, append(announced(300<<10), make([]byte, part)...), false)
		}
		if err != nil {
			break // it was closed
		}
		sent += part
		testbed.Await(t, "a part to be counted", func() bool { return conns.bytes.Load() >= int64(sent) || conns.Count() == 0 })
		if held := conns.bytes.Load(); held > overflow*limits.conn+2*part { // what reaches the bound is counted before it closes the connection
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

// Only a few long replies that their client does not read are held; its other
// calls fail with the reason. When it reads, there is room again.
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
	refused := 0
	for refused < 15 { // five are below the limit, or reach it
		f, err := r.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		h, ok := f.(*http2.MetaHeadersFrame)
		if !ok {
			continue
		}
		for _, field := range h.RegularFields() {
			if field.Name == "grpc-status" && field.Value == "10" { // Aborted, for Uncertain
				refused++
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
	go func() { _, _ = io.Copy(io.Discard, r.conn) }() // ends with the connection
	testbed.Await(t, "the replies to be gone", func() bool { return conns.bytes.Load() == 0 })
}

// A client that waits for a lock gets message after message, and may read none.
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
		if !errors.Is(err, api.Uncertain) { // Unavailable would mean that the lock is not held
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it gets more and more messages")
	}
	if held := conns.bytes.Load(); held > 4*smallCall {
		t.Errorf("%d bytes are held", held)
	}
}

// A request is held while it is served, even if its client has given it up.
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
	testbed.Await(t, "the call to be served", func() bool { return isServing(conns) })
	if err := errors.Join(r.WriteRSTStream(stream, http2.ErrCodeCancel), r.settle()); err != nil {
		t.Fatal(err)
	}
	if held := conns.bytes.Load(); held < size {
		t.Errorf("%d bytes are counted of a request of %d that is being served", held, size)
	}
	close(h.leave)
	testbed.Await(t, "the call to end", func() bool { return conns.bytes.Load() == 0 })
}

// The part of a request that has arrived is held until its stream has ended: a
// handler that refuses it has not read everything, and the client may not read
// the refusal.
func TestRequestsAreHeldUntilTheirStreamsEnd(t *testing.T) {
	const size = 3 * 16 << 10
	c := newHeld(heldLimits{conn: 1 << 30, address: 1 << 30, all: 1 << 30})
	conn, _ := hoarding(t, c, "10.0.0.1:1", 3)
	one := conn.account.newest
	if err := one.serve("", requestSize{}); err != nil {
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

// A client that sends what has to be answered, and does not read the answers,
// makes gRPC keep what it sent. The replica counts that, and closes the
// connection.
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

// While a connection holds as much as it may, its calls are refused, and do not reach the master.
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

// With adaptive windows, gRPC measures the network with pings, and makes the windows of a fast
// client larger. The windows here must be fixed.
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

// TestHeldIsWhatIsOpen passes random frames, cut anywhere, and compares the count with a recount.
func TestHeldIsWhatIsOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newHeld(heldLimits{conn: 1 << 40, address: 1 << 40, all: 1 << 40})
		conn := hear(&fromConn{from: "10.0.0.1:1"}, Listener{Clock: testbed.Clock()})
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
			case 1: // the request continues
				_ = f.WriteData(stream, false, make([]byte, size))
				pass(a.received, wire.Bytes())
				if one.open {
					one.request += dataWeight(size)
				}
			case 2: // one side resets it, or the reply ends
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
				if err := one.call.serve("", requestSize{}); (err == nil) != one.open {
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
			t.Fatalf("every call has ended, and %d bytes of %d addresses are counted", c.bytes.Load(), len(c.from))
		}
	})
}
