package wire

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
)

// described notes what is registered.
type described map[string]grpc.MethodHandler

func (d described) RegisterService(desc *grpc.ServiceDesc, _ any) {
	for _, m := range desc.Methods {
		d["/"+desc.ServiceName+"/"+m.MethodName] = m.Handler
	}
}

// closer serves the closing of handles.
type closer struct {
	pb.UnimplementedChubbyServer
	closed []string
}

func (c *closer) CloseHandle(_ context.Context, q *pb.CloseHandleRequest) (*pb.CloseHandleReply, error) {
	c.closed = append(c.closed, string(q.GetHandle()))
	return &pb.CloseHandleReply{}, nil
}

// Programs that were built with the protocol of v0.1.0 call Close. A server serves that as it serves CloseHandle, and counts
// both as one method; what it lets in whatever is held is the same, too.
func TestFormerNamesAreServed(t *testing.T) {
	var counted []string
	s := &service{cfg: Config{
		Logger: slog.New(slog.DiscardHandler), Stopwatch: func() time.Duration { return 0 },
		Answered: func(method string, _ api.Code, _ time.Duration, _ string) { counted = append(counted, method) },
	}}
	served, c := described{}, &closer{}
	pb.RegisterChubbyServer(door{served, s}, c)
	conns, _ := rated(Rates{Calls: 10})
	for _, method := range []string{"/chubby.v1.Chubby/Close", "/chubby.v1.Chubby/CloseHandle"} {
		handle := served[method]
		if handle == nil {
			t.Errorf("%s is not served", method)
			continue
		}
		wire, err := proto.Marshal(&pb.CloseHandleRequest{Handle: []byte(method)})
		if err == nil {
			conn := arriving(t, conns, "10.0.0.1:1", "", 1)
			conn.account.received(half(t, 1))
			ctx := withCall(peer.NewContext(t.Context(), &peer.Peer{Addr: conn.RemoteAddr()}))
			_, err = handle(c, ctx, func(m any) error { return decodes(m, wire) }, nil)
		}
		if err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	if want := []string{"/chubby.v1.Chubby/Close", "/chubby.v1.Chubby/CloseHandle"}; !slices.Equal(c.closed, want) {
		t.Errorf("closed %q; want %q", c.closed, want)
	}
	if want := slices.Repeat([]string{pb.Chubby_CloseHandle_FullMethodName}, 2); !slices.Equal(counted, want) {
		t.Errorf("counted %q; want %q", counted, want)
	}
	if former := pb.FormerName(pb.Chubby_CloseHandle_FullMethodName); former != "/chubby.v1.Chubby/Close" || pb.FormerName(former) != "" {
		t.Errorf("CloseHandle was %q", former)
	}
}
