package wire

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"google.golang.org/grpc/metadata"
)

// traced is a Tracer, and each of its traces.
type traced struct {
	begun []string // the parents of the calls
	ended []api.Code
}

func (r *traced) Begin(_ context.Context, _, parent string) Trace {
	r.begun = append(r.begun, parent)
	return r
}

func (*traced) ID() string      { return "some trace" }
func (*traced) Step(steps.Step) {}
func (r *traced) End(_ TraceSubject, code api.Code) {
	r.ended = append(r.ended, code)
}

// What a client says of the trace of a call is looked at when the client is known, and handed on if it has the right length.
func TestWhoIsBelievedToBeTraced(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, test := range map[string]struct {
		says  []string
		known error
		want  []string
	}{
		"it says nothing":             {nil, nil, []string{""}},
		"it names a trace":            {[]string{good}, nil, []string{good}},
		"it names two":                {[]string{good, good}, nil, []string{""}},
		"it says too much":            {[]string{good + "-" + strings.Repeat("x", 4000)}, nil, []string{""}},
		"it says too little":          {[]string{good[:54]}, nil, []string{""}},
		"nobody knows who it is":      {[]string{good}, errors.New("its certificate has ended"), nil},
		"nobody knows, and it is mum": {nil, errors.New("its certificate has ended"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := &traced{}
			s := &service{cfg: Config{Logger: slog.New(slog.DiscardHandler), Replica: &turning{}, Tracer: r}}
			_, conn, _ := connected(t, func() (string, func() bool, error) { return "alice", func() bool { return true }, test.known })
			conn.identify(make([]*x509.Certificate, 1))
			call := func(method string) bool {
				has := false
				ctx := metadata.NewIncomingContext(called(t, conn), metadata.MD{"traceparent": test.says})
				_, _, _ = throughDoor(ctx, s, method, &pb.LocateRequest{}, func(ctx context.Context, _ any) (any, error) {
					has = steps.Of(ctx) != nil
					return nil, &api.Error{Code: api.NotFound}
				})
				return has
			}
			if has := call(pb.Chubby_Open_FullMethodName); has != (test.want != nil) {
				t.Errorf("the handler knows a trace: %v", has)
			}
			if strings.Join(r.begun, " ") != strings.Join(test.want, " ") || len(r.begun) != len(r.ended) {
				t.Errorf("traces were begun below %q, want %q; they have ended with %v", r.begun, test.want, r.ended)
			}
			if test.want != nil && r.ended[0] != api.NotFound {
				t.Errorf("the call has ended with %v", r.ended)
			}
			if before := len(r.begun); call(pb.Chubby_KeepAlive_FullMethodName) || len(r.begun) != before {
				t.Error("a KeepAlive is traced")
			}
		})
	}
}
