package wire

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Every RPC is known to be an act or not: a new one has to be thought of.
func TestEveryCallIsAudited(t *testing.T) {
	n, all := 0, rpcs()
	for _, service := range []grpc.ServiceDesc{pb.Chubby_ServiceDesc, pb.Cell_ServiceDesc} {
		var names []string
		for _, m := range service.Methods {
			names = append(names, m.MethodName)
		}
		for _, s := range service.Streams {
			names = append(names, s.StreamName)
		}
		for _, name := range names {
			n++
			if _, ok := all["/"+service.ServiceName+"/"+name]; !ok {
				t.Errorf("%s has no row in rpcs: is it for operators, or does it change who may do what?", name)
			}
		}
	}
	if n < 30 || n != len(all) {
		t.Errorf("%d calls, and %d rows", n, len(all))
	}
}

// noMaster is a replica that is not the master.
type noMaster struct{ Replica }

func (noMaster) Master() (*master.Master, error) { return nil, api.NotMaster }

// A restore that waits for sessions to end was answered, and has done nothing: it is asked again and again. The last one is told.
func TestRestoreThatWaitsIsNoAct(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Config{
		File: name, Size: 1 << 20, Files: 1, Wall: func() int64 { return 0 }, Clock: func() session.Instant { return 0 }, Logger: slog.New(slog.DiscardHandler), Failed: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := newService(Config{Audit: log, Replica: noMaster{}})
	for _, reply := range []*pb.RestoreReply{{Sessions: 3}, {Sessions: 1}, {Restored: true}} {
		s.audit(t.Context(), witness{principal: "root", audited: beginsOnly}, pb.Chubby_Restore_FullMethodName, &pb.RestoreRequest{Finish: true}, reply, nil)
	}
	s.audit(t.Context(), witness{principal: "root", audited: beginsOnly}, pb.Chubby_Restore_FullMethodName, &pb.RestoreRequest{Begin: &pb.RestoreBegin{}}, &pb.RestoreReply{}, nil)
	log.Close()
	data, err := os.ReadFile(name)
	if told := strings.Count(string(data), `"event":"act","call":"Restore","principal":"root","code":"OK"`); told != 2 || err != nil {
		t.Errorf("%d steps of two are told: %s (%v)", told, data, err)
	}
}

// A path or a name may be as long as a request may be. Logs and traces have less of it.
func TestSubjectsAreBounded(t *testing.T) {
	long := strings.Repeat("\x01é", api.MaxCommand/4)
	for _, q := range []any{
		&pb.SetQuotaRequest{Path: long}, &pb.SetQuotaRequest{Principal: long}, &pb.TransferRequest{To: long}, &pb.BreakLockRequest{Path: long},
		&pb.ChangeMembersRequest{Add: long, Raft: long, Remove: long}, &pb.OpenRequest{Path: long}, &pb.ExplainRequest{Path: long},
	} {
		if text := subjectOf(q); len(text) > api.MaxPath || len(text) < api.MaxPath-4 || !utf8.ValidString(text) {
			t.Errorf("%T: %d bytes are said", q, len(text))
		}
	}
}

// A caller that is refused does not decide how long the line about it is.
func TestLinesOfRefusalsAreBounded(t *testing.T) {
	var logged strings.Builder
	s := newService(Config{Replica: noMaster{}, Logger: slog.New(slog.NewJSONHandler(&logged, nil))})
	long := strings.Repeat("é", api.MaxCommand/2)
	_, conn, _ := connected(t, nil)
	c := callOf(called(t, conn))
	c.ServerStream, c.method, c.asked = arrivedStream{ctx: t.Context()}, pb.Chubby_SetQuota_FullMethodName, &pb.SetQuotaRequest{Path: long}
	s.logRefusal(c, status(api.Errorf(api.PermissionDenied, "%s", long)))
	if n := logged.Len(); n == 0 || n > 3*maxSaid || strings.Count(logged.String(), `é…"`) != 2 {
		t.Errorf("a line of %d bytes: %.400s", n, logged.String())
	}
}

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

// The replica looks at a client's trace of a call when the client is known, and hands it on if it has the right length.
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
			s := newService(Config{Logger: slog.New(slog.DiscardHandler), Replica: &turning{}, Tracer: r})
			_, conn, _ := connected(t, func() (string, func() bool, error) { return "alice", func() bool { return true }, test.known })
			conn.identify(make([]*x509.Certificate, 1))
			call := func(method string) bool {
				has := false
				ctx := metadata.NewIncomingContext(called(t, conn), metadata.MD{"traceparent": test.says})
				_, _, _ = throughDoor(ctx, s, method, &pb.LocateRequest{}, func(ctx context.Context, _ any) (any, error) {
					has = steps.TraceOf(ctx) != ""
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
