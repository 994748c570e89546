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

// phasesOf returns how long a call waited, by kind.
func phasesOf(waited map[steps.Kind]time.Duration) (list []any) {
	for _, one := range []struct {
		kind steps.Kind
		name string
	}{
		{steps.Queue, "queue"}, {steps.Caches, "caches"}, {steps.Pending, "pending"}, {steps.Entry, "commit"},
		{steps.Append, "append"}, {steps.Quorum, "quorum"}, {steps.Apply, "apply"}, {steps.Observe, "observe"},
	} {
		if took := waited[one.kind]; took > 0 {
			list = append(list, slog.Duration(one.name, took))
		}
	}
	return list
}

// ownTime returns how long a call took, except what it waits for by design: a queue position, news, an outage's end.
func (c *call) ownTime(took time.Duration) time.Duration {
	switch {
	case c.rpc.keepsAlive, c.rpc.waits, c.rpc.queues && c.slow == nil:
		return 0
	case c.rpc.queues:
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
		attrs = append(attrs, slog.Group("phases", phasesOf(c.slow)...))
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

// beginTrace begins the trace of a known client's call, if any. KeepAlives have none: they wait by design, and there
// are very many.
func (s *service) beginTrace(c *call) Trace {
	if s.cfg.Tracer == nil || c.rpc.keepsAlive {
		return nil
	}
	ctx := c.Context()
	return s.cfg.Tracer.Begin(ctx, c.method, parentOf(ctx))
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
	if name, known := s.nodeOf(m, request); known {
		about.Path = m.Path(name)
	}
	return about
}
