package wire

import (
	"context"
	"errors"
	"log/slog"
	"path"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/steps"
)

// identify notes how the client calls the call of a request.
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

// RequestID implements steps.Identified.
func (c *call) RequestID() steps.RequestID {
	if c == nil {
		return 0
	}
	return c.named
}

// logRefusal logs that a call was refused because of who its caller is: one line a second at most, for anybody can have as
// many refused as they like. What an audit log has of them is apart.
func (s *service) logRefusal(ctx context.Context, call *call, method string, request any, trace Trace, err error) {
	n, ok := s.refused.Next()
	if !ok {
		return
	}
	attrs := append(s.describe(ctx, call, method, request, trace), slog.Int("count", n))
	var e *api.Error
	if errors.As(pb.Error(err), &e) {
		attrs = append(attrs, slog.String("code", e.Code.String()), slog.String("error", e.Message))
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a call was refused", append(attrs, slog.String("event", "call_refused"))...)
}

// describe says what call it was, and whose.
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
