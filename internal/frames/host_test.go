package frames

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// host serves calls, as frames and over gRPC, on one port.
type host struct {
	pb.UnimplementedTestServiceServer
	server  *Server
	entered chan struct{} // gets an element for each call that waits
	leave   chan struct{} // calls wait for it
	parked  chan func()   // gets what resumes each call that is parked
	early   bool          // calls that are parked are resumed before their handlers have returned
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
	h.server = NewServer(ServerConfig{Times: hostTimes(), MaxCalls: hostCalls, MaxRequest: hostRequest})
	pb.RegisterTestServiceServer(h.server, h)
	t.Cleanup(h.server.Stop)
	return h
}

// listen serves on a port of the loopback interface, and returns its address.
func (h *host) listen(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// linked is a link over a connection.
func linked(t testing.TB, conn net.Conn) (*Link, pb.TestServiceClient) {
	t.Helper()
	l, err := Open(t.Context(), conn, LinkConfig{Times: Times{Ping: 10 * time.Second, Timeout: 5 * time.Second, Idle: time.Minute}, MaxReply: hostRequest})
	if err != nil {
		t.Fatal(err)
	}
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
		select {
		case <-h.leave:
		case <-ctx.Done():
			h.entered <- struct{}{}
			return nil, context.Cause(ctx)
		}
	}
	if s := q.GetResponseStatus(); s != nil {
		return nil, status.Error(codes.Code(s.GetCode()), s.GetMessage())
	}
	return &pb.SimpleResponse{Payload: &pb.Payload{Body: make([]byte, q.GetResponseSize())}}, nil
}

// park parks a call, which is answered by what UnaryCall would answer.
func (h *host) park(ctx context.Context, q *pb.SimpleRequest) error {
	q.FillOauthScope = false
	resume := Park(ctx, func() (any, error) {
		defer h.ended.Add(1)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return h.UnaryCall(ctx, q)
	})
	context.AfterFunc(ctx, resume)
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
	resume := Park(s.Context(), func() (any, error) {
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
