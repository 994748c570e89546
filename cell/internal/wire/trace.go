package wire

import (
	"context"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc/metadata"
)

// Tracer begins traces of calls.
type Tracer interface {
	// Begin begins the trace of a call before it is served, or returns nil. method is the full name. parent is
	// the client's trace, in the form of W3C Trace Context if well-formed, or "".
	Begin(ctx context.Context, method, parent string) Trace
}

// Trace records a traced call.
type Trace interface {
	steps.Trace
	// End is called once, when the call is answered.
	End(subject TraceSubject, code api.Code)
}

// TraceSubject is what a call concerns.
type TraceSubject struct {
	Session api.SessionID   // 0 without a session
	Request steps.RequestID // the client's id; 0 without one
	Path    string          // "" if unknown or absent
}

// traceparent is the header that names the trace of a call (W3C Trace Context). The length is that of version
// 00, the only one.
const (
	traceparent       = "traceparent"
	traceparentLength = 55
)

// parentOf returns the client's trace of a call, "" if its length is invalid. Tracer.Begin checks the rest.
func parentOf(ctx context.Context) string {
	text := frames.Traceparent(ctx)
	if text == "" {
		if values := metadata.ValueFromIncomingContext(ctx, traceparent); len(values) == 1 {
			text = values[0]
		}
	}
	if len(text) != traceparentLength {
		return ""
	}
	return text
}

// trace begins the trace of a known client's call, if any. KeepAlives have none: they wait by design, and there
// are very many.
func (s *service) trace(ctx context.Context, method string) Trace {
	if s.cfg.Tracer == nil || method == pb.Chubby_KeepAlive_FullMethodName || method == pb.Chubby_KeepAlives_FullMethodName {
		return nil
	}
	return s.cfg.Tracer.Begin(ctx, method, parentOf(ctx))
}

func (s *service) endTrace(t Trace, request any, err error) {
	if t == nil {
		return
	}
	code := api.OK
	if err != nil {
		code = api.CodeOf(pb.Error(err))
	}
	t.End(s.traceSubject(request), code)
}

// traceSubject returns what a request concerns, as far as this replica can tell.
func (s *service) traceSubject(request any) (about TraceSubject) {
	about.Request, about.Path = requestIDOf(request), subjectOf(request)
	m, _ := s.cfg.Replica.Master()
	if m == nil {
		return about
	}
	if q, ok := request.(interface{ GetCaller() *pb.Caller }); ok {
		if who, err := s.callerOf(m, q.GetCaller()); err == nil {
			about.Session = who.Session
		}
	}
	if name, known := nodeOf(m, request); known {
		about.Path = m.Path(name)
	}
	return about
}

func traceID(t Trace) string {
	if t == nil {
		return ""
	}
	return t.ID()
}
