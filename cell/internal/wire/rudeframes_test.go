package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/internal/frames"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
)

// framed is a client that speaks in frames, and reads only when it is told to.
type framed struct {
	t    *testing.T
	conn net.Conn
	last uint64
}

// newFramed connects over a wire that holds 4 KiB.
func newFramed(t *testing.T, l *bufconn.Listener) *framed {
	t.Helper()
	conn := testbed.Must(l.DialContext(t.Context()))(t)
	t.Cleanup(func() { _ = conn.Close() })
	r := &framed{t: t, conn: conn}
	hello := make([]byte, frames.HelloSize)
	copy(hello, "chubby frames/1\n")
	testbed.NoErr(t, testbed.ErrOf(conn.Write(hello)))
	testbed.NoErr(t, testbed.ErrOf(io.ReadFull(conn, hello)))
	return r
}

// frameOf returns a request as it is sent.
func frameOf(number uint64, method string, q proto.Message) []byte {
	message, _ := proto.Marshal(q)
	payload := append(append([]byte{byte(len(method))}, method...), 0)
	payload = append(payload, message...)
	return append(frames.Header{Kind: frames.KindRequest, Call: number, Length: len(payload)}.Append(nil), payload...)
}

// begin sends a request.
func (r *framed) begin(method string, q proto.Message) (number uint64, err error) {
	r.last++
	_, err = r.conn.Write(frameOf(r.last, method, q))
	return r.last, err
}

// next reads a frame.
func (r *framed) next() (frames.Header, []byte) {
	r.t.Helper()
	var head [frames.HeaderSize]byte
	if _, err := io.ReadFull(r.conn, head[:]); err != nil {
		r.t.Fatal(err)
	}
	h := frames.ParseHeader(&head)
	payload := make([]byte, h.Length)
	if _, err := io.ReadFull(r.conn, payload); err != nil {
		r.t.Fatal(err)
	}
	return h, payload
}

// ending reads up to the next end of a call.
func (r *framed) ending() codes.Code {
	r.t.Helper()
	for {
		h, payload := r.next()
		var s spb.Status
		switch {
		case h.Kind == frames.KindLast:
			return codes.OK
		case h.Kind == frames.KindStatus:
			if err := proto.Unmarshal(payload, &s); err != nil {
				r.t.Fatal(err)
			}
			return codes.Code(s.GetCode())
		}
	}
}

func wide() heldLimits { return heldLimits{conn: 1 << 30, address: 1 << 30, all: 1 << 30} }

// A request is counted as soon as its length is known, before it takes any memory.
func TestHalfSentFramesAreCounted(t *testing.T) {
	l := bufconn.Listen(4 << 10)
	conns := (&host{}).serve(t, l, wide())
	r := newFramed(t, l)
	whole := frameOf(1, pb.Chubby_SetContents_FullMethodName, &pb.SetContentsRequest{Contents: make([]byte, 200<<10)})
	testbed.NoErr(t, testbed.ErrOf(r.conn.Write(whole[:frames.HeaderSize+10])))
	testbed.Await(t, "the request to be counted", func() bool { return conns.bytes.Load() >= 200<<10 })
	_ = r.conn.Close()
	testbed.Await(t, "nothing to be counted", func() bool { return conns.bytes.Load() == 0 })
}

// The payload of a frame that begins no call is thrown away as it arrives, so that it need not be
// counted: neither cancels nor pings have anything to say.
func TestFramesThatBeginNoCallTakeNoMemory(t *testing.T) {
	for _, kind := range []frames.Kind{frames.KindCancel, frames.KindPing, 77} {
		l := bufconn.Listen(4 << 10)
		(&host{}).serve(t, l, wide())
		const conns, size = 50, 300 << 10
		var before, after runtime.MemStats
		all := make([]*framed, conns)
		for i := range all {
			all[i] = newFramed(t, l)
		}
		runtime.GC()
		runtime.ReadMemStats(&before)
		for _, r := range all {
			testbed.NoErr(t, testbed.ErrOf(r.conn.Write(append(frames.Header{Kind: kind, Length: size}.Append(nil), make([]byte, size-1)...))))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > conns*size/4 {
			t.Errorf("%d unfinished frames of kind %d take %d bytes", conns, kind, grown)
		}
	}
}

// Of the long replies that a client does not read, only so many are kept as it may hold; its other
// calls are refused. When it reads, there is room again.
func TestUnreadFramesAreBounded(t *testing.T) {
	limits := heldLimits{conn: 1 << 20, address: 1 << 30, all: 1 << 30}
	l := bufconn.Listen(4 << 10)
	conns := (&host{contents: make([]byte, api.MaxContents)}).serve(t, l, limits)
	r := newFramed(t, l)
	for range 20 {
		testbed.NoErr(t, testbed.ErrOf(r.begin(pb.Chubby_GetContentsAndStat_FullMethodName, &pb.GetContentsAndStatRequest{})))
	}
	testbed.Await(t, "the replies", func() bool { return conns.bytes.Load() > limits.conn })
	if held := conns.bytes.Load(); held > overflow*limits.conn {
		t.Errorf("%d bytes are held", held)
	}
	ends := map[codes.Code]int{}
	for range 20 {
		ends[r.ending()]++
	}
	if ends[codes.OK] < 3 || ends[codes.Aborted] < 10 {
		t.Errorf("the calls ended with %v", ends)
	}
	testbed.Await(t, "the replies to be gone", func() bool { return conns.bytes.Load() == 0 })
	testbed.NoErr(t, testbed.ErrOf(r.begin(pb.Chubby_GetContentsAndStat_FullMethodName, &pb.GetContentsAndStatRequest{})))
	if code := r.ending(); code != codes.OK {
		t.Errorf("the next call ended with %v", code)
	}
}

// A client that waits for a lock gets message after message, and may read none.
func TestUnreadNewsInFramesIsBounded(t *testing.T) {
	h := &host{told: make(chan error, 1)}
	l := bufconn.Listen(4 << 10)
	conns := h.serve(t, l, wide())
	testbed.NoErr(t, testbed.ErrOf(newFramed(t, l).begin(pb.Chubby_Acquire_FullMethodName, &pb.AcquireRequest{})))
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

// A client that begins very many calls which it lets wait loses its connection when these hold
// too much.
func TestManyFramesThatWaitAreBounded(t *testing.T) {
	h := &host{leave: make(chan struct{})}
	l := bufconn.Listen(4 << 10)
	limits := heldLimits{conn: 1 << 20, address: 1 << 30, all: 1 << 30}
	conns := h.serve(t, l, limits)
	r := newFramed(t, l)
	sent := 0
	for ; sent < maxStreams; sent++ {
		if _, err := r.begin(pb.Chubby_SetContents_FullMethodName, &pb.SetContentsRequest{}); err != nil {
			break
		}
	}
	testbed.Await(t, "the connection to be closed", func() bool { return conns.Count() == 0 })
	if most := int(overflow * limits.conn / callWeight); sent < most/2 || sent > most+100 {
		t.Errorf("%d calls were read; want about %d", sent, most)
	}
	close(h.leave)
	testbed.Await(t, "the calls to end", func() bool { return conns.bytes.Load() == 0 })
}

// A request is held while it is served, even if its client has given it up; and one without room
// is refused.
func TestFramesThatAreGivenUpAreHeldWhileTheyAreServed(t *testing.T) {
	h := &host{leave: make(chan struct{})}
	l := bufconn.Listen(4 << 10)
	conns := h.serve(t, l, heldLimits{conn: 100 << 10, address: 1 << 30, all: 1 << 30})
	r := newFramed(t, l)
	const size = 60 << 10
	number := testbed.Must(r.begin(pb.Chubby_SetContents_FullMethodName, &pb.SetContentsRequest{Contents: make([]byte, size)}))(t)
	testbed.Await(t, "the call to be served", func() bool { return isServing(conns) })
	testbed.NoErr(t, testbed.ErrOf(r.begin(pb.Chubby_SetContents_FullMethodName, &pb.SetContentsRequest{Contents: make([]byte, size)})))
	if code := r.ending(); code != codes.Unavailable {
		t.Errorf("a call without room ended with %v", code)
	}
	ping := frames.Header{Kind: frames.KindPing, Call: 3}.Append(frames.Header{Kind: frames.KindCancel, Call: number}.Append(nil))
	testbed.NoErr(t, testbed.ErrOf(r.conn.Write(ping)))
	for kind := frames.Kind(0); kind != frames.KindPong; {
		h, _ := r.next()
		kind = h.Kind
	}
	if held := conns.bytes.Load(); held < size {
		t.Errorf("%d bytes are counted of a request of %d that is being served", held, size)
	}
	close(h.leave)
	testbed.Await(t, "the call to end", func() bool { return conns.bytes.Load() == 0 })
}

func (*host) Delete(context.Context, *pb.DeleteRequest) (*pb.DeleteReply, error) { panic("as a test") }

// A handler that panics costs its call, and nothing else.
func TestPanicInAFrame(t *testing.T) {
	l := bufconn.Listen(4 << 10)
	(&host{}).serve(t, l, wide())
	r := newFramed(t, l)
	for range 2 {
		testbed.NoErr(t, testbed.ErrOf(r.begin(pb.Chubby_Delete_FullMethodName, &pb.DeleteRequest{})))
		if code := r.ending(); code != codes.Aborted {
			t.Errorf("the call ended with %v", code)
		}
	}
}
