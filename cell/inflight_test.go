package cell

import (
	"context"
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc"
)

// Requests are let in while those that are being served are within the bounds, of
// their connection and of all.
func TestRequestsInFlightAreBounded(t *testing.T) {
	const unit = 100 << 10
	f := newInflight(2*unit+unit/2, unit)
	var served []func()
	for _, step := range []struct {
		from string
		size int
		code api.Code
	}{{"a", unit - 10, api.OK}, {"a", 11, api.Unavailable}, {"a", 10, api.OK}, {"b", unit, api.OK}, {"c", unit/2 + 1, api.Unavailable}, {"c", unit / 2, api.OK}} {
		done, err := f.take(step.from, step.size)
		if api.CodeOf(err) != step.code {
			t.Errorf("%d bytes from %s: %v", step.size, step.from, err)
		}
		if err == nil {
			served = append(served, done)
		}
	}
	for _, done := range served {
		done()
	}
	if f.sum != 0 || len(f.from) != 0 {
		t.Errorf("%d bytes of %d connections are counted when nothing is being served", f.sum, len(f.from))
	}
}

// A call that there is no room for does not reach the master, and gives back what
// it took when it has ended.
func TestCallsWithoutRoomAreRefused(t *testing.T) {
	s := &service{inflight: newInflight(1000, 1000)}
	info := &grpc.UnaryServerInfo{FullMethod: pb.Chubby_SetContents_FullMethodName}
	call := func(size int, serve func()) error {
		_, err := s.unary(t.Context(), &pb.SetContentsRequest{Contents: make([]byte, size)}, info, func(context.Context, any) (any, error) {
			serve()
			return nil, nil
		})
		return pb.Error(err)
	}
	for range 2 {
		if err := call(900, func() {
			if err := call(200, func() { t.Error("it was served") }); !errors.Is(err, api.Unavailable) {
				t.Errorf("a call without room: %v", err)
			}
		}); err != nil {
			t.Error(err)
		}
	}
}

// Whatever others have in flight, sessions are kept alive, and a connection that has next to
// nothing in flight is served.
func TestRoomForSmallRequests(t *testing.T) {
	s := &service{inflight: newInflight(1<<20, 1<<19)}
	serve := func(method string, request any) error {
		_, err := s.unary(t.Context(), request, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
		return pb.Error(err)
	}
	for _, from := range []string{"", "b"} { // "" is that of the calls below
		if _, err := s.inflight.take(from, 1<<19); err != nil {
			t.Fatal(err)
		}
	}
	alive := &pb.KeepAliveRequest{Caller: &pb.Caller{Session: make([]byte, 30)}, Received: 1}
	if err := serve(pb.Chubby_KeepAlive_FullMethodName, alive); err != nil {
		t.Errorf("a KeepAlive beside the bytes of its own connection: %v", err)
	}
	if err := serve(pb.Chubby_KeepAlive_FullMethodName, &pb.KeepAliveRequest{Caller: &pb.Caller{Session: make([]byte, 2<<10)}}); !errors.Is(err, api.InvalidArgument) {
		t.Errorf("a KeepAlive that is none: %v", err)
	}
	for _, step := range []struct {
		size int
		code api.Code
	}{{100, api.OK}, {leastInflight - 100, api.OK}, {1, api.Unavailable}} {
		if _, err := s.inflight.take("c", step.size); api.CodeOf(err) != step.code {
			t.Errorf("%d bytes of a connection that has little in flight: %v", step.size, err)
		}
	}
}
