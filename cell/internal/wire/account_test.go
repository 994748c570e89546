package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/internal/frames"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/test/bufconn"
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
		testbed.NoErr(t, r.send(streams[len(streams)-1], announced(0), true))
	}
	refused := 0
	for refused < 15 { // five are below the limit, or reach it
		f := testbed.Must(r.ReadFrame())(t)
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
		testbed.NoErr(t, errors.Join(r.WriteWindowUpdate(0, 1<<20), r.WriteWindowUpdate(stream, 1<<20)))
	}
	go func() { _, _ = io.Copy(io.Discard, r.conn) }() // ends with the connection
	testbed.Await(t, "the replies to be gone", func() bool { return conns.bytes.Load() == 0 })
}

// A client that sends what has to be answered, and does not read the answers,
// makes gRPC keep what it sent. The replica counts that, and closes the
// connection.
func TestFloodOfAClientThatDoesNotRead(t *testing.T) {
	l := bufconn.Listen(4 << 10)
	conns := (&host{}).serve(t, l, heldLimits{conn: 256 << 10, address: 1 << 30, all: 1 << 30})
	conn := testbed.Must(l.DialContext(t.Context()))(t)
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

// With adaptive windows, gRPC measures the network with pings, and makes the windows of a fast
// client larger. The windows here must be fixed.
func TestWindowsAreFixed(t *testing.T) {
	l := testbed.Loopback(t)
	(&host{}).serve(t, l, heldLimits{conn: 1 << 30, address: 1 << 30, all: 1 << 30})
	r := newRude(t, dialled(t, l))
	stream := r.begin(pb.Chubby_SetContents_FullMethodName)
	testbed.NoErr(t, errors.Join(r.send(stream, append(announced(300<<10), make([]byte, 48<<10)...), false), r.WritePing(false, [8]byte{1})))
	for {
		f := testbed.Must(r.ReadFrame())(t)
		if ping, ok := f.(*http2.PingFrame); ok {
			if !ping.IsAck() {
				t.Error("the replica measures the network")
			}
			return
		}
	}
}

func TestLongRepliesTakeTheirSize(t *testing.T) {
	data := testbed.Must(exactCodec{encoding.GetCodecV2("proto")}.Marshal(&pb.GetContentsAndStatReply{Contents: make([]byte, api.MaxContents)}))(t)
	if took := cap(data[0].ReadOnlyData()); took > api.MaxContents*5/4 {
		t.Errorf("a reply with %d bytes takes %d", api.MaxContents, took)
	}
}

// format is how calls look on the wire. They are numbered from 0.
type format struct {
	received, sent []byte // before the first frame
	begin          func(call, size int) (wire []byte, weight int64)
	more           func(call, size int) (wire []byte, weight int64) // of a request; nil if it comes in one piece
	reply          func(call, size int) []byte
	ends           []ending
}

type ending struct {
	wire func(call int) []byte
	sent bool // by the server
}

func formats() map[string]format {
	h2 := func(write func(f *http2.Framer)) []byte {
		var wire bytes.Buffer
		f := http2.NewFramer(&wire, nil)
		f.AllowIllegalWrites = true
		write(f)
		return wire.Bytes()
	}
	stream := func(call int) uint32 { return uint32(2*call + 1) }
	data := func(call, size int) []byte {
		return h2(func(f *http2.Framer) { _ = f.WriteData(stream(call), false, make([]byte, size)) })
	}
	headers := func(call int, end bool) []byte {
		return h2(func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream(call), BlockFragment: make([]byte, 10), EndHeaders: true, EndStream: end})
		})
	}
	reset := func(call int) []byte { return h2(func(f *http2.Framer) { _ = f.WriteRSTStream(stream(call), 0) }) }
	ours := func(kind frames.Kind) func(call, size int) []byte {
		return func(call, size int) []byte {
			return append(frames.Header{Kind: kind, Call: uint64(call + 1), Length: size}.Append(nil), make([]byte, size)...)
		}
	}
	return map[string]format{
		"HTTP/2": {
			received: []byte(http2.ClientPreface),
			begin:    func(call, _ int) ([]byte, int64) { return headers(call, false), callWeight },
			more:     func(call, size int) ([]byte, int64) { return data(call, size), dataWeight(size) },
			reply:    data,
			ends:     []ending{{reset, false}, {reset, true}, {func(call int) []byte { return headers(call, true) }, true}},
		},
		"frames": {
			received: append([]byte{frames.FirstByte}, make([]byte, frames.HelloSize-1)...),
			sent:     make([]byte, frames.HelloSize),
			begin: func(call, size int) ([]byte, int64) {
				return ours(frames.KindRequest)(call, size), callWeight + dataWeight(size)
			},
			reply: ours(frames.KindReply),
			ends: []ending{
				{func(call int) []byte { return ours(frames.KindCancel)(call, 0) }, false},
				{func(call int) []byte { return ours(frames.KindLast)(call, 100) }, true},
				{func(call int) []byte { return ours(frames.KindStatus)(call, 100) }, true},
			},
		},
	}
}

// TestHeldIsWhatIsOpen passes random frames, cut anywhere, and compares the count with a recount.
func TestHeldIsWhatIsOpen(t *testing.T) {
	for name, f := range formats() {
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkHeld(t, f) }) })
	}
}

func checkHeld(t *rapid.T, f format) {
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
	pass(a.received, f.received)
	pass(a.sent, f.sent)
	type twin struct {
		call           *call
		request, reply int64
		open, serving  bool
	}
	var all []*twin
	for range 60 {
		step, size := rapid.IntRange(0, 6).Draw(t, "step"), rapid.IntRange(1, 16<<10).Draw(t, "size")
		if step == 0 || len(all) == 0 {
			wire, weight := f.begin(len(all), size)
			pass(a.received, wire)
			all = append(all, &twin{call: a.newest, request: weight, open: true})
			continue
		}
		i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
		one := all[i]
		switch step {
		case 1: // the request continues
			if f.more == nil {
				continue
			}
			wire, weight := f.more(i, size)
			if pass(a.received, wire); one.open {
				one.request += weight
			}
		case 2: // one side resets it, or the reply ends
			end := rapid.SampledFrom(f.ends).Draw(t, "how")
			to := a.received
			if end.sent {
				to = a.sent
			}
			pass(to, end.wire(i))
			one.open, one.reply = false, 0
		case 3:
			if err := one.call.admit(requestSize{}); (err == nil) != one.open {
				t.Fatalf("a call that is open: %v; served: %v", one.open, err)
			}
			one.serving = one.serving || one.open
		case 4:
			one.call.served()
			one.serving = false
		case 5:
			before := one.call.reply
			if one.call.countReply(&pb.GetContentsAndStatReply{Contents: make([]byte, size)}) == nil && one.open {
				one.reply += one.call.reply - before
			}
		case 6:
			pass(a.sent, f.reply(i, size))
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
	if c.bytes.Load() != 0 || c.ending.Load() != 0 || len(c.from.here) != 0 {
		t.Fatalf("every call has ended, and %d bytes of %d addresses are counted", c.bytes.Load(), len(c.from.here))
	}
}
