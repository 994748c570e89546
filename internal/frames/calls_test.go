package frames

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// inBubble runs a test in virtual time, with a host and a link to it.
func inBubble(t *testing.T, test func(t *testing.T, h *host, l *Link, stub pb.TestServiceClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		ours, theirs := net.Pipe()
		h.server.Take(&buffered{Conn: theirs, reader: bufio.NewReader(theirs)})
		l, stub := linked(t, ours)
		test(t, h, l, stub)
	})
}

// Calls have the answers and the errors that they have over gRPC.
func TestCalls(t *testing.T) {
	address := newHost(t).listen(t)
	framed, _ := linked(t, dialled(t, address))
	for name, conn := range map[string]grpc.ClientConnInterface{"frames": framed, "gRPC": overGRPC(t, address)} {
		stub := pb.NewTestServiceClient(conn)
		for _, size := range []int32{0, 1, 100, 40_000} {
			reply, err := stub.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: size, Payload: &pb.Payload{Body: make([]byte, size)}})
			if err != nil || len(reply.GetPayload().GetBody()) != int(size) {
				t.Errorf("%s: a reply of %d bytes has %d: %v", name, size, len(reply.GetPayload().GetBody()), err)
			}
		}
		refused := &pb.EchoStatus{Code: int32(codes.NotFound), Message: "nothing there"}
		if _, err := stub.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseStatus: refused}); status.Code(err) != codes.NotFound || status.Convert(err).Message() != refused.GetMessage() {
			t.Errorf("%s: a refused call: %v", name, err)
		}
		if _, err := stub.EmptyCall(t.Context(), &pb.Empty{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: a method without a body: %v", name, err)
		}
		if _, err := pb.NewUnimplementedServiceClient(conn).UnimplementedCall(t.Context(), &pb.Empty{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: an unknown service: %v", name, err)
		}
		late, cancel := context.WithTimeout(t.Context(), 0)
		if _, err := stub.UnaryCall(late, &pb.SimpleRequest{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%s: a call that has no time: %v", name, err)
		}
		cancel()
		for _, end := range []*pb.EchoStatus{nil, refused} {
			sizes, err := streamed(t.Context(), stub, end, 10, 20_000, 0)
			if !slices.Equal(sizes, []int{10, 20_000, 0}) || end == nil && err != nil || end != nil && status.Code(err) != codes.NotFound {
				t.Errorf("%s: replies of %v bytes, and %v", name, sizes, err)
			}
		}
	}
}

// streamed makes a call with several replies, and returns their sizes.
func streamed(ctx context.Context, stub pb.TestServiceClient, end *pb.EchoStatus, sizes ...int32) (got []int, err error) {
	q := &pb.StreamingOutputCallRequest{ResponseStatus: end}
	for _, size := range sizes {
		q.ResponseParameters = append(q.ResponseParameters, &pb.ResponseParameters{Size: size})
	}
	stream, err := stub.StreamingOutputCall(ctx, q)
	if err != nil {
		return nil, err
	}
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, len(reply.GetPayload().GetBody()))
	}
}

// Many calls share a connection, and each has its own answer.
func TestManyCalls(t *testing.T) {
	_, stub := linked(t, dialled(t, newHost(t).listen(t)))
	var calls sync.WaitGroup
	for i := range 3 * hostCalls { // more than the server takes at a time
		calls.Go(func() {
			for j := range 20 {
				size := int32(i*j%997 + 1)
				reply, err := stub.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: size})
				if err != nil || len(reply.GetPayload().GetBody()) != int(size) {
					t.Errorf("a reply of %d bytes has %d: %v", size, len(reply.GetPayload().GetBody()), err)
				}
			}
		})
	}
	calls.Wait()
}

// A call that is given up ends at once here, and at the server, which is told.
func TestGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, l *Link, stub pb.TestServiceClient) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := stub.UnaryCall(ctx, waits())
			done <- err
		}()
		<-h.entered
		began := time.Now()
		cancel()
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		<-h.entered
		if took := time.Since(began); took > 0 {
			t.Errorf("the handler ran on for %v", took)
		}
		if len(l.slots) != 0 {
			t.Errorf("%d calls are in flight", len(l.slots))
		}
		if _, err := stub.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil {
			t.Error(err)
		}
	})
}

// The server knows how much time is left for a call.
func TestDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, l *Link, stub pb.TestServiceClient) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		_, err := stub.UnaryCall(ctx, waits())
		<-h.entered
		<-h.entered
		if took := time.Since(began); status.Code(err) != codes.DeadlineExceeded || took != 3*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// A request that the server would not take is not sent.
func TestTooLong(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *host, _ *Link, stub pb.TestServiceClient) {
		if _, err := stub.UnaryCall(t.Context(), &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, hostRequest)}}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a long request: %v", err)
		}
		if _, err := stub.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: 2 * hostRequest}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a long reply: %v", err)
		}
		if _, err := stub.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
}

// A server that stops answers what it has taken, also if that is parked, and takes no more. Its client knows that what
// came later was not served.
func TestGracefulStop(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, l *Link, stub pb.TestServiceClient) {
		done, stopped := make(chan error, 2), make(chan struct{})
		for _, q := range []*pb.SimpleRequest{waits(), parks(1)} {
			go func() {
				_, err := stub.UnaryCall(t.Context(), q)
				done <- err
			}()
		}
		<-h.entered
		resume := <-h.parked
		go func() {
			h.server.GracefulStop()
			close(stopped)
		}()
		synctest.Wait()
		var unsent *NotSentError
		if _, err := stub.UnaryCall(t.Context(), &pb.SimpleRequest{}); !errors.As(err, &unsent) {
			t.Errorf("a call to a server that leaves: %v", err)
		}
		select {
		case <-l.Left():
		default:
			t.Error("the link takes calls")
		}
		close(h.leave)
		if err := <-done; err != nil {
			t.Errorf("a call that was being served: %v", err)
		}
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stopped before the call that is parked was answered")
		default:
		}
		resume()
		if err := <-done; err != nil {
			t.Errorf("a call that was parked: %v", err)
		}
		<-stopped
		l.Wait()
	})
}

// Calls under way when the connection breaks are uncertain, unless they were not sent.
func TestBrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		peer := &rude{t: t, conn: theirs}
		go peer.greet()
		l, stub := linked(t, ours)
		results := make([]error, 2)
		var calls sync.WaitGroup
		for i := range results {
			calls.Go(func() { _, results[i] = stub.UnaryCall(t.Context(), &pb.SimpleRequest{}) })
			synctest.Wait() // the first write does not end: nobody reads it; the second call waits behind it
		}
		_ = theirs.Close()
		calls.Wait()
		l.Wait()
		var unsent *NotSentError
		if errors.As(results[0], &unsent) || status.Code(results[0]) != codes.Unavailable {
			t.Errorf("a call of which something may have been sent: %v", results[0])
		}
		if !errors.As(results[1], &unsent) || status.Code(results[1]) != codes.Unavailable {
			t.Errorf("a call that was not sent: %v", results[1])
		}
	})
}

// A connection without calls is closed, by whichever end has waited long enough for one.
func TestIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, l *Link, stub pb.TestServiceClient) {
		time.Sleep(30 * time.Second)
		began := time.Now()
		if _, err := stub.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil {
			t.Error(err)
		}
		defer time.AfterFunc(time.Hour, l.Close).Stop()
		l.Wait()
		if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("the client closed the connection after %v", took)
		}
	})
	inBubble(t, func(t *testing.T, h *host, l *Link, _ pb.TestServiceClient) {
		l.beat.calls.Add(1) // so that the client does not
		began := time.Now()
		defer time.AfterFunc(time.Hour, l.Close).Stop()
		l.Wait()
		if took, idle := time.Since(began), hostTimes().Idle; took < idle || took > idle+time.Second {
			t.Errorf("the server closed the connection after %v", took)
		}
	})
	inBubble(t, func(t *testing.T, h *host, l *Link, stub pb.TestServiceClient) {
		parked := make(chan error, 1)
		go func() {
			_, err := stub.UnaryCall(t.Context(), waits())
			parked <- err
		}()
		time.Sleep(time.Hour)
		close(h.leave)
		if err := <-parked; err != nil {
			t.Errorf("a call that waited: %v", err)
		}
	})
}

// The library tells a server that does not speak frames from one that does not answer.
func TestOtherProtocols(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			serve func(net.Conn)
			other bool
			http  bool
		}{
			"it closes the connection": {func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, HelloSize)); _ = c.Close() }, true, false},
			"it speaks HTTP/1": {func(c net.Conn) {
				_, _ = io.ReadFull(c, make([]byte, HelloSize))
				_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request")
				_ = c.Close()
			}, true, true},
			"it speaks HTTP/2": {func(c net.Conn) {
				_, _ = io.ReadFull(c, make([]byte, HelloSize))
				_, _ = c.Write([]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 5, 0, 0, 64, 0})
				_ = c.Close()
			}, true, false},
			"it says nothing": {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, false, false},
		} {
			ours, theirs := net.Pipe()
			go test.serve(theirs)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := Open(ctx, ours, LinkConfig{Times: hostTimes(), MaxReply: hostRequest})
			cancel()
			if err == nil || errors.Is(err, ErrOtherProtocol) != test.other || errors.Is(err, ErrHTTP) != test.http {
				t.Errorf("%s: %v", name, err)
			}
			_ = theirs.Close()
		}
	})
}

// gRPC, which knows nothing of frames, closes such a connection at once.
func TestOnlyGRPC(t *testing.T) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	g := grpc.NewServer()
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	defer func() {
		g.Stop()
		<-done
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // gRPC waits for 120 s for a preface that is not complete
	defer cancel()
	if _, err := Open(ctx, dialled(t, l.Addr().String()), LinkConfig{Times: hostTimes(), MaxReply: hostRequest}); !errors.Is(err, ErrOtherProtocol) {
		t.Error(err)
	}
}
