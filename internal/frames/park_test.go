package frames

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

func parks(size int32) *pb.SimpleRequest {
	return &pb.SimpleRequest{FillOauthScope: true, ResponseSize: size}
}

// Calls that are parked have no goroutines, and each is answered once, with what the rest of its
// handler returns, however often it is resumed.
func TestParked(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, _ *Link, stub pb.TestServiceClient) {
		var waiting sync.WaitGroup
		for i := range hostCalls / 2 {
			waiting.Go(func() {
				reply, err := stub.UnaryCall(t.Context(), parks(int32(i)))
				if err != nil || len(reply.GetPayload().GetBody()) != i {
					t.Errorf("a reply of %d bytes has %d: %v", i, len(reply.GetPayload().GetBody()), err)
				}
			})
			synctest.Wait()
		}
		if n := len(h.server.workers.resting); n != 1 {
			t.Errorf("of the goroutines that have served calls one after the other %d have nothing to do", n)
		}
		for range hostCalls / 2 {
			resume := <-h.parked
			resume()
			resume()
		}
		waiting.Wait()
		h.early = true
		if reply, err := stub.UnaryCall(t.Context(), parks(10)); err != nil || len(reply.GetPayload().GetBody()) != 10 {
			t.Errorf("resumed before its handler had returned: %v", err)
		}
		if _, err := stub.UnaryCall(t.Context(), &pb.SimpleRequest{FillOauthScope: true, ResponseStatus: &pb.EchoStatus{Code: int32(codes.NotFound)}}); status.Code(err) != codes.NotFound {
			t.Errorf("a status of a call that was parked: %v", err)
		}
		if n := h.ended.Load(); n != hostCalls/2+2 {
			t.Errorf("%d calls have ended", n)
		}
	})
}

// A call with several replies is parked before each of them.
func TestParkedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, _ *Link, stub pb.TestServiceClient) {
		const replies = 3
		q := &pb.StreamingOutputCallRequest{Payload: &pb.Payload{}}
		for i := range int32(replies) {
			q.ResponseParameters = append(q.ResponseParameters, &pb.ResponseParameters{Size: i})
		}
		stream, err := stub.StreamingOutputCall(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range replies {
			synctest.Wait()
			if n := len(h.server.workers.resting); n != 1 {
				t.Errorf("before reply %d, %d goroutines have nothing to do", i, n)
			}
			(<-h.parked)()
			if reply, err := stream.Recv(); err != nil || len(reply.GetPayload().GetBody()) != i {
				t.Errorf("reply %d has %d bytes: %v", i, len(reply.GetPayload().GetBody()), err)
			}
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) || h.ended.Load() != 1 {
			t.Errorf("after the last reply: %v; %d calls have ended", err, h.ended.Load())
		}
	})
}

// A call that is parked ends when nobody waits for it any more: its client has given it up, its
// time is over, its connection has ended, or the server stops.
func TestParkedForNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, l *Link, stub pb.TestServiceClient) {
		for range 2 * hostCalls { // none keeps its place among the calls of the connection
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := stub.UnaryCall(ctx, parks(1)); status.Code(err) != codes.DeadlineExceeded {
				t.Fatal(err)
			}
			cancel()
			synctest.Wait()
		}
		if n := h.ended.Load(); n != 2*hostCalls {
			t.Errorf("%d calls have ended", n)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if _, err := stub.UnaryCall(t.Context(), parks(1)); status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
		})
		synctest.Wait()
		l.Close()
		waiting.Wait()
		synctest.Wait()
		if n := h.ended.Load(); n != 2*hostCalls+1 {
			t.Errorf("%d calls have ended", n)
		}
		h.server.Stop() // which waits for calls that are parked
	})
}

// The rests of prompt calls run in as many goroutines as there are processors, however many are resumed.
func TestPromptRestsHaveALane(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, _ *Link, stub pb.TestServiceClient) {
		h.prompt = true
		q := waits()
		q.FillOauthScope = true
		var waiting sync.WaitGroup
		for range hostCalls / 2 {
			waiting.Go(func() {
				if _, err := stub.CacheableUnaryCall(t.Context(), q); err != nil {
					t.Error(err)
				}
			})
		}
		for range hostCalls / 2 {
			(<-h.parked)()
		}
		synctest.Wait()
		if n := len(h.entered); n != runtime.GOMAXPROCS(0) {
			t.Errorf("%d of the rests run at once, and there are %d processors", n, runtime.GOMAXPROCS(0))
		}
		close(h.leave)
		waiting.Wait()
		synctest.Wait()
		if l := &h.server.resumed; l.running > 0 || len(l.waiting) > 0 || h.ended.Load() != hostCalls/2 {
			t.Errorf("%d goroutines run, %d rests wait, and %d calls have ended", l.running, len(l.waiting), h.ended.Load())
		}
	})
}

// A call that is parked when nobody waits for it any more ends, too.
func TestParkedTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, _ *Link, stub pb.TestServiceClient) {
		h.late = true
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := stub.UnaryCall(ctx, parks(1)); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		synctest.Wait()
		if n := h.ended.Load(); n != 1 {
			t.Errorf("%d calls have ended", n)
		}
	})
}

// Over gRPC a call is parked in the goroutine that gRPC gave it, also if it is resumed at once, and parked again.
func TestParkOverGRPC(t *testing.T) {
	for _, early := range []bool{false, true} {
		h := newHost(t)
		h.early = early
		stub := pb.NewTestServiceClient(overGRPC(t, h.listen(t)))
		go func() {
			for range 4 {
				(<-h.parked)()
			}
		}()
		if reply, err := stub.UnaryCall(t.Context(), parks(10)); err != nil || len(reply.GetPayload().GetBody()) != 10 {
			t.Error(reply, err)
		}
		several, err := stub.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{Payload: &pb.Payload{}, ResponseParameters: []*pb.ResponseParameters{{Size: 0}, {Size: 1}, {Size: 2}}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if reply, err := several.Recv(); err != nil || len(reply.GetPayload().GetBody()) != i {
				t.Errorf("reply %d has %d bytes: %v", i, len(reply.GetPayload().GetBody()), err)
			}
		}
		if _, err := several.Recv(); !errors.Is(err, io.EOF) {
			t.Error("after the last reply:", err)
		}
	}
}

// BenchmarkCall measures a short call over TCP, of 64 clients with a connection each, and of one
// client: as frames, and over gRPC. cpu-us/op is the processor time of both ends and of the
// system for them.
func BenchmarkCall(b *testing.B) {
	for _, clients := range []int{1, 64} {
		for _, over := range []string{"frames", "grpc"} {
			b.Run(over+"/"+map[int]string{1: "one", 64: "many"}[clients], func(b *testing.B) {
				address := newHost(b).listen(b)
				conns := make([]grpc.ClientConnInterface, clients)
				for i := range conns {
					if over == "frames" {
						conns[i], _ = linked(b, dialled(b, address))
					} else {
						conns[i] = overGRPC(b, address)
					}
				}
				measure(b, conns)
			})
		}
	}
}

func overGRPC(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10),
		grpc.WithDisableServiceConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// measure makes b.N calls over some connections, one at a time over each.
func measure(b *testing.B, conns []grpc.ClientConnInterface) {
	b.Helper()
	call := func(conn grpc.ClientConnInterface) {
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		if _, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, 100)}, ResponseSize: 50}); err != nil {
			b.Error(err)
		}
	}
	for _, conn := range conns {
		call(conn)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	began := processor(b)
	var running sync.WaitGroup
	for _, conn := range conns {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				call(conn)
			}
		})
	}
	running.Wait()
	b.ReportMetric(float64(processor(b)-began)/float64(time.Microsecond)/float64(b.N), "cpu-us/op")
}

// processor returns the processor time that this process has taken.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	noErr(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Prompt calls are served where they are read, a few at a time of all connections. However many come, none is
// begun before its turn, and when they are parked they have taken no goroutine.
func TestPromptCallsHaveTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, _ *Link, stub pb.TestServiceClient) {
		var waiting sync.WaitGroup
		begin := func(stub pb.TestServiceClient, q *pb.SimpleRequest, want codes.Code) {
			waiting.Go(func() {
				if _, err := stub.CacheableUnaryCall(t.Context(), q); status.Code(err) != want {
					t.Errorf("a prompt call: %v, want %v", err, want)
				}
			})
		}
		for range hostCalls / 2 {
			begin(stub, parks(1), codes.OK)
		}
		synctest.Wait()
		if n := len(h.server.workers.resting); n != 0 || len(h.parked) != hostCalls/2 || len(h.server.turns) != 0 {
			t.Errorf("%d goroutines have served calls, %d of which are parked; %d turns are taken", n, len(h.parked), len(h.server.turns))
		}
		for range hostCalls / 2 {
			(<-h.parked)()
		}
		waiting.Wait()
		refused := &pb.SimpleRequest{ResponseStatus: &pb.EchoStatus{Code: int32(codes.NotFound)}}
		begin(stub, refused, codes.NotFound)
		waiting.Wait()
		turns := cap(h.server.turns)
		for range 2 * turns {
			ours, theirs := net.Pipe()
			h.server.Take(&buffered{Conn: theirs, reader: bufio.NewReader(theirs)})
			_, other := linked(t, ours)
			begin(other, waits(), codes.OK)
			begin(other, waits(), codes.OK)
		}
		synctest.Wait()
		if n := len(h.entered); n != turns {
			t.Errorf("%d calls are served at once; %d may be", n, turns)
		}
		close(h.leave)
		waiting.Wait()
	})
}
