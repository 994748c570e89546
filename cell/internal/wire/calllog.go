package wire

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc/metadata"
)

func requestIDOf(request any) steps.RequestID {
	switch q := request.(type) {
	case interface{ GetCaller() *pb.Caller }:
		return steps.RequestID(q.GetCaller().GetRequest())
	case *pb.CreateSessionRequest:
		return steps.RequestID(q.GetRequest())
	}
	return 0
}

// RequestID implements steps.Call.
func (c *call) RequestID() steps.RequestID { return c.named }

// maxSaid limits each text in the line of a refusal, in bytes: the refused caller chooses these texts.
const maxSaid = 512

// logRefusal logs that a call was refused for its caller's identity. It writes at most one line a second, since
// strangers cause any number. The audit log records them separately.
func (s *service) logRefusal(c *call, err error) {
	n, ok := s.refused.Next()
	//mutant: if !ok && n > 0 { //by TestLogOfRequests of ./cell
	if !ok {
		return
	}
	attrs := append(s.describe(c), slog.Int("count", n))
	var e *api.Error
	if errors.As(pb.Error(err), &e) {
		attrs = append(attrs, slog.String("code", e.Code.String()), slog.String("error", e.Message))
	}
	for i, a := range attrs {
		if text := a.Value.String(); a.Value.Kind() == slog.KindString && len(text) > maxSaid {
			attrs[i].Value = slog.StringValue(strings.ToValidUTF8(text[:maxSaid], "") + "…")
		}
	}
	s.cfg.Logger.LogAttrs(c.Context(), slog.LevelWarn, "a call was refused", append(attrs, slog.String("event", "call_refused"))...)
}

// phases are how long a call waited, by kind.
type phases map[steps.Kind]time.Duration

func (p phases) attrs() (list []any) {
	for _, one := range []struct {
		kind steps.Kind
		name string
	}{
		{steps.Queue, "queue"}, {steps.Caches, "caches"}, {steps.Pending, "pending"}, {steps.Entry, "commit"},
		{steps.Append, "append"}, {steps.Quorum, "quorum"}, {steps.Apply, "apply"}, {steps.Observe, "observe"},
	} {
		if took := p[one.kind]; took > 0 {
			list = append(list, slog.Duration(one.name, took))
		}
	}
	return list
}

var _ steps.Call = (*call)(nil)

// TraceID implements steps.Call.
func (c *call) TraceID() string {
	if c.trace == nil {
		return ""
	}
	return c.trace.ID()
}

// Step implements steps.Call, for a call that is traced or was slow.
func (c *call) Step(s steps.Step) {
	if c.trace != nil {
		c.trace.Step(s)
	}
	if c.slow == nil {
		c.slow = phases{}
	}
	for _, one := range append([]steps.Step{s}, s.Parts...) {
		c.slow[one.Kind] += one.To.Sub(one.From)
	}
}

// own returns how long a call took, except what it waits for by design: a queue position, news, an outage's end.
func (c *call) own(took time.Duration) time.Duration {
	switch c.method {
	case pb.Chubby_KeepAlive_FullMethodName, pb.Chubby_KeepAlives_FullMethodName, pb.Chubby_Transfer_FullMethodName:
		return 0
	case pb.Chubby_Acquire_FullMethodName:
		if c.slow == nil {
			return 0
		}
		return took - c.slow[steps.Queue]
	}
	return took
}

// logSlow logs a slow call and what it waited for, as far as the master reported. It writes at most one line a second.
func (s *service) logSlow(c *call, took, own time.Duration) {
	n, ok := s.slow.Next()
	if !ok {
		return
	}
	attrs := append(s.describe(c), slog.Duration("took", took), slog.Duration("own", own), slog.Int("count", n))
	if c.slow != nil {
		attrs = append(attrs, slog.Group("phases", c.slow.attrs()...))
	}
	s.cfg.Logger.LogAttrs(c.Context(), slog.LevelWarn, "a call was slow", append(attrs, slog.String("event", "slow_call"))...)
}

func (s *service) describe(c *call) []slog.Attr {
	m, _ := s.cfg.Replica.Master()
	about := s.traceSubject(c.asked)
	attrs := []slog.Attr{slog.String("method", path.Base(c.method)), slog.String("principal", s.whoCalls(c.Context(), m, c.asked))}
	if about.Path != "" {
		attrs = append(attrs, slog.String("path", about.Path))
	}
	if about.Session != 0 {
		attrs = append(attrs, slog.String("session", about.Session.String()))
	}
	from, _ := c.of.conn.from()
	attrs = append(attrs, slog.String("from", from))
	if c.named != 0 {
		attrs = append(attrs, slog.String("request", c.named.String()))
	}
	if id := c.TraceID(); id != "" {
		attrs = append(attrs, slog.String("trace", id))
	}
	return attrs
}

// Tracer begins traces of calls.
type Tracer interface {
	// Begin begins the trace of a call before it is served, or returns nil. method is the full name. parent is
	// the client's trace, in the form of W3C Trace Context if well-formed, or "".
	Begin(ctx context.Context, method, parent string) Trace
}

// Trace records a traced call.
type Trace interface {
	ID() string
	// Step records a part of the call that has ended.
	Step(s steps.Step)
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
