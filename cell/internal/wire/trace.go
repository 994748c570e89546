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
	// Begin begins the trace of a call that is about to be served. method is its full name; parent is what the
	// client has said of the trace that the call belongs to, in the form of W3C Trace Context if it is well-formed, or "". It
	// returns nil if the call is not traced.
	Begin(ctx context.Context, method, parent string) Trace
}

// Trace is told of a call that is traced.
type Trace interface {
	steps.Trace
	// End ends it. It is called once, when the call has been answered.
	End(subject TraceSubject, code api.Code)
}

// TraceSubject is what a call is about.
type TraceSubject struct {
	Session api.SessionID   // 0 if it is in none
	Request steps.RequestID // as its client calls it; 0 if it does not
	Path    string          // "" if it is about none, or that is not known
}

// traceparent is the name of the header that says to which trace a call belongs (W3C Trace Context), and its length in
// version 00, the only one there is.
const (
	traceparent       = "traceparent"
	traceparentLength = 55
)

// parentOf returns what a client has said of the trace that a call belongs to: "" if nothing that can be true. Whether it is
// well-formed beyond its length, Tracer.Begin sees.
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

// trace begins the trace of a call whose client is known; who is not known is refused before. It returns nil if the call is not traced.
// KeepAlives never are: they wait by design, and there are very many.
func (s *service) trace(ctx context.Context, method string) Trace {
	if s.cfg.Tracer == nil || method == pb.Chubby_KeepAlive_FullMethodName || method == pb.Chubby_KeepAlives_FullMethodName {
		return nil
	}
	return s.cfg.Tracer.Begin(ctx, method, parentOf(ctx))
}

// endTrace ends the trace of a call, if it has one.
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

// traceSubject returns what a request is about, as far as this replica can tell.
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

// traceID returns the name of a trace, "" if there is none.
func traceID(t Trace) string {
	if t == nil {
		return ""
	}
	return t.ID()
}
