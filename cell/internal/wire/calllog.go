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
)

func (c *call) identify(request any) {
	if c != nil {
		c.named = requestIDOf(request)
	}
}

func requestIDOf(request any) steps.RequestID {
	switch q := request.(type) {
	case interface{ GetCaller() *pb.Caller }:
		return steps.RequestID(q.GetCaller().GetRequest())
	case *pb.CreateSessionRequest:
		return steps.RequestID(q.GetRequest())
	}
	return 0
}

func (c *call) RequestID() steps.RequestID {
	if c == nil {
		return 0
	}
	return c.named
}

// maxSaid limits each text in the line of a refusal, in bytes: the refused caller chooses these texts.
const maxSaid = 512

// logRefusal logs that a call was refused for its caller's identity. It writes at most one line a second, since
// strangers cause any number. The audit log records them separately.
func (s *service) logRefusal(ctx context.Context, call *call, method string, request any, trace Trace, err error) {
	n, ok := s.refused.Next()
	//mutant: if !ok && n > 0 { //by TestLogOfRequests of ./cell
	if !ok {
		return
	}
	attrs := append(s.describe(ctx, call, method, request, trace), slog.Int("count", n))
	var e *api.Error
	if errors.As(pb.Error(err), &e) {
		attrs = append(attrs, slog.String("code", e.Code.String()), slog.String("error", e.Message))
	}
	for i, a := range attrs {
		if text := a.Value.String(); a.Value.Kind() == slog.KindString && len(text) > maxSaid {
			attrs[i].Value = slog.StringValue(strings.ToValidUTF8(text[:maxSaid], "") + "…")
		}
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a call was refused", append(attrs, slog.String("event", "call_refused"))...)
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

var (
	_ steps.Identified = (*call)(nil)
	_ steps.Trace      = (*call)(nil)
)

// ID implements steps.Trace: the call is not traced.
func (*call) ID() string { return "" }

// Step implements steps.Trace, for a call that was slow.
func (c *call) Step(s steps.Step) {
	if c == nil {
		return
	}
	if c.slow == nil {
		c.slow = &phases{}
	}
	for _, one := range append([]steps.Step{s}, s.Parts...) {
		(*c.slow)[one.Kind] += one.To.Sub(one.From)
	}
}

// own returns how long a call took, except what it waits for by design: a queue position, news, an outage's end.
func (c *call) own(method string, took time.Duration) time.Duration {
	switch method {
	case pb.Chubby_KeepAlive_FullMethodName, pb.Chubby_KeepAlives_FullMethodName, pb.Chubby_Transfer_FullMethodName:
		return 0
	case pb.Chubby_Acquire_FullMethodName:
		if c.slow == nil {
			return 0
		}
		return took - (*c.slow)[steps.Queue]
	}
	return took
}

// logSlow logs a slow call and what it waited for, as far as the master reported. It writes at most one line a second.
func (s *service) logSlow(ctx context.Context, call *call, method string, request any, trace Trace, took, own time.Duration) {
	n, ok := s.slow.Next()
	if !ok {
		return
	}
	attrs := append(s.describe(ctx, call, method, request, trace), slog.Duration("took", took), slog.Duration("own", own), slog.Int("count", n))
	if call.slow != nil {
		attrs = append(attrs, slog.Group("phases", call.slow.attrs()...))
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a call was slow", append(attrs, slog.String("event", "slow_call"))...)
}

func (s *service) describe(ctx context.Context, call *call, method string, request any, trace Trace) []slog.Attr {
	m, _ := s.cfg.Replica.Master()
	about := s.traceSubject(request)
	attrs := []slog.Attr{slog.String("method", path.Base(method)), slog.String("principal", s.whoCalls(ctx, m, request))}
	if about.Path != "" {
		attrs = append(attrs, slog.String("path", about.Path))
	}
	if about.Session != 0 {
		attrs = append(attrs, slog.String("session", about.Session.String()))
	}
	if conn := connOf(ctx); conn != nil {
		attrs = append(attrs, slog.String("from", conn.Conn.RemoteAddr().String()))
	}
	if id := call.RequestID(); id != 0 {
		attrs = append(attrs, slog.String("request", id.String()))
	}
	if id := traceID(trace); id != "" {
		attrs = append(attrs, slog.String("trace", id))
	}
	return attrs
}
