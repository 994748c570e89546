package frames

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// host serves calls, as frames and over gRPC, on one port.
type host struct {
	pb.UnimplementedTestServiceServer
	server  *Server
	entered chan struct{} // gets an element for each call that waits
	leave   chan struct{} // calls wait for it
	parked  chan func()   // gets what resumes each call that is parked
	early   bool          // calls that are parked are resumed before their handlers have returned
	late    bool          // calls are parked when their clients have given them up
	prompt  bool          // calls that are parked have prompt rests
	deaf    bool          // calls that wait do not end with their clients
	ended   atomic.Int64  // calls that were parked and are over
}

// The bounds of a host.
const (
	hostCalls   = 100
	hostRequest = 100 << 10
)

func hostTimes() Times {
	return Times{Ping: 10 * time.Second, Timeout: 5 * time.Second, Idle: 5 * time.Minute}
}

// newHost serves until the test ends.
func newHost(t testing.TB) *host {
	h := &host{entered: make(chan struct{}, 1000), leave: make(chan struct{}), parked: make(chan func(), 1000)}
	h.server = NewServer(ServerConfig{Times: hostTimes(), MaxCalls: hostCalls, MaxRequest: hostRequest, Prompt: func(method string) bool {
		return method == pb.TestService_CacheableUnaryCall_FullMethodName
	}})
	pb.RegisterTestServiceServer(h.server, h)
	t.Cleanup(h.server.Stop)
	return h
}

// listen serves on a port of the loopback interface, and returns its address.
func (h *host) listen(t testing.TB) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	g := grpc.NewServer(append(h.server.Gateway(), grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(8<<10), grpc.ConnectionTimeout(5*time.Second))...)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		h.server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// dialled connects.
func dialled(t testing.TB, address string) net.Conn {
	t.Helper()
	conn := must(net.Dial("tcp", address))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// linked is a link over a connection.
func linked(t testing.TB, conn net.Conn) (*Link, pb.TestServiceClient) {
	t.Helper()
	l := must(Open(t.Context(), conn, LinkConfig{Times: Times{Ping: 10 * time.Second, Timeout: 5 * time.Second, Idle: time.Minute}, MaxReply: hostRequest}))(t)
	t.Cleanup(func() {
		l.Close()
		l.Wait()
	})
	return l, pb.NewTestServiceClient(l)
}

// UnaryCall answers with so many bytes as are asked for, or with the status. It waits if the
// request has a user's name, and is parked if it has a scope.
func (h *host) UnaryCall(ctx context.Context, q *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if q.GetFillOauthScope() {
		return nil, h.park(ctx, q)
	}
	if q.GetFillUsername() {
		h.entered <- struct{}{}
		done := ctx.Done()
		if h.deaf {
			done = nil
		}
		select {
		case <-h.leave:
		case <-done:
			h.entered <- struct{}{}
			return nil, context.Cause(ctx)
		}
	}
	if s := q.GetResponseStatus(); s != nil {
		return nil, status.Error(codes.Code(s.GetCode()), s.GetMessage())
	}
	return &pb.SimpleResponse{Payload: &pb.Payload{Body: make([]byte, q.GetResponseSize())}}, nil
}

// CacheableUnaryCall is UnaryCall, but prompt, as long as the request has no user's name.
func (h *host) CacheableUnaryCall(ctx context.Context, q *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return h.UnaryCall(ctx, q)
}

// park parks a call, which is answered by what UnaryCall would answer.
func (h *host) park(ctx context.Context, q *pb.SimpleRequest) error {
	q.FillOauthScope = false
	if h.late {
		<-ctx.Done()
	}
	resume := Park(ctx, h.prompt, func() (any, error) {
		defer h.ended.Add(1)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return h.UnaryCall(ctx, q)
	})
	if h.early {
		resume()
	}
	h.parked <- resume
	return ErrParked
}

// StreamingOutputCall answers with messages of the sizes that are asked for. It is parked
// before each of them if the request has a payload.
func (h *host) StreamingOutputCall(q *pb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	if q.GetPayload() != nil {
		return h.parkEach(q, s)
	}
	for _, one := range q.GetResponseParameters() {
		if err := s.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, one.GetSize())}}); err != nil {
			return err
		}
	}
	if e := q.GetResponseStatus(); e != nil {
		return status.Error(codes.Code(e.GetCode()), e.GetMessage())
	}
	return nil
}

func (h *host) parkEach(q *pb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	sizes := q.GetResponseParameters()
	resume := Park(s.Context(), false, func() (any, error) {
		reply := &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, sizes[0].GetSize())}}
		if len(sizes) == 1 {
			h.ended.Add(1)
			return reply, nil
		}
		if err := s.Send(reply); err != nil {
			return nil, err
		}
		q.ResponseParameters = sizes[1:]
		return nil, h.parkEach(q, s)
	})
	h.parked <- resume
	return ErrParked
}

func waits() *pb.SimpleRequest { return &pb.SimpleRequest{FillUsername: true} }

// parent is a context that counts those that are made of it and have not ended.
type parent struct {
	context.Context
	done chan struct{}
	open *atomic.Int64
}

func (p parent) Done() <-chan struct{} { return p.done }

// AfterFunc is what package context calls for each context that is made of this one, and stops
// when that has ended.
func (p parent) AfterFunc(func()) (stop func() bool) {
	p.open.Add(1)
	return func() bool { return p.open.Add(-1) >= 0 }
}

// Nothing is kept of requests that are refused before they have a handler: their client may
// have said that there are years left for them, and its connection may be open for as long.
func TestNothingIsKeptOfRefusedRequests(t *testing.T) {
	years := func(method string) []byte {
		b := appendRequest(Header{Kind: KindRequest}.Append(nil), method, 100*365*24*time.Hour)
		seal(b, 1)
		return b
	}
	for name, sent := range map[string][]byte{
		"an unknown method": years("/no/method"),
		"a known method":    years(pb.TestService_UnaryCall_FullMethodName),
		"no method":         Header{Kind: KindRequest, Call: 1}.Append(nil),
		"a long request":    append(Header{Kind: KindRequest, Call: 1, Length: 2 * hostRequest}.Append(nil), make([]byte, 2*hostRequest)...),
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t)
			var open atomic.Int64
			h.server.cfg.Tap = func(ctx context.Context) context.Context {
				return parent{Context: ctx, done: make(chan struct{}), open: &open}
			}
			ours, theirs := net.Pipe()
			h.server.Take(&buffered{Conn: theirs, reader: bufio.NewReader(theirs)})
			r := &rude{t: t, conn: ours}
			r.greet()
			go func() { _, _ = ours.Write(sent) }()
			var head [HeaderSize]byte
			must(readHeader(ours, &head))(t)
			synctest.Wait()
			if n := open.Load(); n != 0 {
				t.Errorf("%s: %d contexts are kept when it has been answered", name, n)
			}
			_ = ours.Close()
		})
	}
}

// A connection that ends, and a cancel, take a call from those that are open, and end its context a moment later. A handler that sends a reply in between
// finds no cause.
func TestReplyWhileItsCallEnds(t *testing.T) {
	here, there := net.Pipe()
	defer func() { _ = here.Close() }()
	defer func() { _ = there.Close() }()
	c := newServerConn(NewServer(ServerConfig{MaxCalls: 10, MaxRequest: 1 << 10}), here)
	k := &serverCall{conn: c, number: 1}
	k.begin()
	defer k.cancel(nil)
	c.calls[1] = k
	c.mu.Lock()
	delete(c.calls, 1) // as serverConn.end and take do
	c.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v", p)
		}
	}()
	if err := k.SendMsg(&emptypb.Empty{}); err == nil {
		t.Error("it was sent")
	}
}

// writersConn notes which goroutines write.
type writersConn struct {
	net.Conn
	mu  sync.Mutex
	ids map[string]int
}

func (c *writersConn) Write(p []byte) (int, error) {
	var stack [64]byte
	id, _, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte(" ["))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[string(id)]++
	return len(p), nil
}

// The writes of a link are made by one goroutine, which stays and keeps its stack, and ends when the outlet is closed.
func TestOneGoroutineWritesForALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if the goroutine does not end
		conn := &writersConn{ids: map[string]int{}}
		var pool buffers
		o := outlet{conn: conn, clock: startStopwatch(), pool: &pool, wake: newWake()}
		for range 5 {
			frame := pool.get(8)
			frame.b = append(frame.b, "message"...)
			if _, write, _ := o.enqueue(frame, false); write {
				o.write()
			}
			synctest.Wait()
		}
		if len(conn.ids) != 1 {
			t.Errorf("goroutines wrote as often as %v; want one", conn.ids)
		}
		o.close()
		o.close()
		o.running.Wait()
		if _, _, open := o.enqueue(pool.get(1), false); open {
			t.Error("it takes more after its end")
		}
	})
}

const someTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// traceKey finds the trace of a call that is made in a test.
type traceKey struct{}

func traceOf(ctx context.Context) string {
	text, _ := ctx.Value(traceKey{}).(string)
	return text
}

// A server knows of each call to which trace it belongs, and of the next one that it belongs to none.
func TestTraceparent(t *testing.T) {
	h := newHost(t)
	var mu sync.Mutex
	var seen []string
	h.server.cfg.Serve = func(m *Method, stream grpc.ServerStream) (any, error) {
		mu.Lock()
		seen = append(seen, Traceparent(stream.Context()))
		mu.Unlock()
		return m.Handle(stream, nil)
	}
	l, stub := linked(t, dialled(t, h.listen(t)))
	l.cfg.Traceparent = traceOf
	for _, trace := range []string{"", someTrace, "", strings.Repeat("x", maxTrace), strings.Repeat("x", maxTrace+1), someTrace} {
		if _, err := stub.UnaryCall(context.WithValue(t.Context(), traceKey{}, trace), &pb.SimpleRequest{}); err != nil {
			t.Errorf("a call of the trace %q: %v", trace, err)
		}
		want := trace
		if len(trace) > maxTrace {
			want = ""
		}
		if got := seen[len(seen)-1]; got != want {
			t.Errorf("the server was told %q, want %q", got, want)
		}
	}
	if Traceparent(t.Context()) != "" {
		t.Error("a context that is of no call belongs to a trace")
	}
}

// The trace of a call that never came is not that of another call.
func TestTraceOfAnother(t *testing.T) {
	h := newHost(t)
	told := make(chan string, 1)
	h.server.cfg.Serve = func(m *Method, stream grpc.ServerStream) (any, error) {
		told <- Traceparent(stream.Context())
		return m.Handle(stream, nil)
	}
	conn := dialled(t, h.listen(t))
	frame := hello{length: 1 << 20}.append(nil)
	frame = appendTrace(frame, someTrace) // of call 0
	request := appendRequest(Header{Kind: KindRequest}.Append(nil), "/grpc.testing.TestService/UnaryCall", 0)
	seal(request, 1)
	must(conn.Write(append(frame, request...)))(t)
	must(io.ReadFull(conn, make([]byte, HelloSize+HeaderSize)))(t)
	if got := <-told; got != "" {
		t.Errorf("call 1 has the trace %q of call 0", got)
	}
}

// must returns what a call returned that had to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noErr(t, err)
		return value
	}
}

// noErr ends the test if there is an error.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
