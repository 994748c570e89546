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
	f := newInflight(250, 100)
	var served []func()
	for _, step := range []struct {
		from string
		size int
		code api.Code
	}{{"a", 90, api.OK}, {"a", 11, api.Unavailable}, {"a", 10, api.OK}, {"b", 100, api.OK}, {"c", 51, api.Unavailable}, {"c", 50, api.OK}} {
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
