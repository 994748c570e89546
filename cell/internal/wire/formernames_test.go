package wire

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
)

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
	c := &closer{}
	l := bufconn.Listen(4 << 10)
	serveOn(t, s, c, l, newHeld(wide()), testbed.Clock())
	r := newFramed(t, l)
	for _, method := range []string{"/chubby.v1.Chubby/Close", "/chubby.v1.Chubby/CloseHandle"} {
		if _, err := r.begin(method, &pb.CloseHandleRequest{Handle: []byte(method)}); err != nil {
			t.Fatal(err)
		}
		if code := r.ending(); code != codes.OK {
			t.Errorf("%s: %v", method, code)
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
