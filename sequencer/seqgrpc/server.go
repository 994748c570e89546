package seqgrpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/internal/carried"
)

// MetadataKey is the metadata that carries a sequencer's text. A call carries
// exactly one value of it.
const MetadataKey = "chubby-sequencer"

// FromContext returns the sequencer of the running call, for handlers that
// store its token with what they write, or compare its path. Exempt calls have
// none.
func FromContext(ctx context.Context) (sequencer.Sequencer, bool) {
	return sequencer.FromContext(ctx)
}

// UnaryInterceptor lets unary calls in by the guard. exempt are methods that
// need no sequencer, "/package.Service/Method", or whole services,
// "/package.Service/", such as "/grpc.health.v1.Health/".
func UnaryInterceptor(guard *sequencer.Guard, exempt ...string) grpc.UnaryServerInterceptor {
	free := exempted(exempt)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		if free(info.FullMethod) {
			return handler(ctx, req)
		}
		err = admit(ctx, guard, func(ctx context.Context) error {
			reply, err = handler(ctx, req)
			return err
		})
		return reply, err
	}
}

// StreamInterceptor lets streams in by the guard, until their handlers return.
// exempt is as in UnaryInterceptor. When a newer holder comes, a waiting Recv
// or Send fails with FailedPrecondition at once, and so does every later one;
// do not use the message of that Recv.
func StreamInterceptor(guard *sequencer.Guard, exempt ...string) grpc.StreamServerInterceptor {
	free := exempted(exempt)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if free(info.FullMethod) {
			return handler(srv, stream)
		}
		return admit(stream.Context(), guard, func(ctx context.Context) error {
			return handler(srv, &guardedStream{ServerStream: stream, ctx: ctx})
		})
	}
}

// admit runs serve in a section of the lock that the call's sequencer names. It
// returns serve's error unchanged, and the guard's as a status.
func admit(ctx context.Context, guard *sequencer.Guard, serve func(context.Context) error) error {
	values := metadata.ValueFromIncomingContext(ctx, MetadataKey)
	if fault := carried.Fault(guard, values, "call", `as metadata "`+MetadataKey+`"`); fault != "" {
		return status.Error(codes.FailedPrecondition, fault)
	}
	served, err := carried.Admit(ctx, guard, values[0], serve)
	if served || err == nil {
		return err
	}
	return refused(err)
}

// refused returns the status of a call that the guard did not let in.
func refused(err error) error {
	code := codes.Unavailable // the guard could not decide, as with a store that fails
	switch api.CodeOf(err) {
	case api.BadSequencer:
		code = codes.FailedPrecondition
	case api.QuotaExceeded:
		code = codes.ResourceExhausted
	case api.DeadlineExceeded:
		code = codes.DeadlineExceeded
	case api.Cancelled:
		code = codes.Canceled
	}
	return detailed(status.New(code, err.Error()), err)
}

func exempted(methods []string) func(fullMethod string) bool {
	exempt := make(map[string]bool, len(methods))
	for _, method := range methods {
		exempt[method] = true
	}
	return func(fullMethod string) bool {
		service := fullMethod[:strings.LastIndexByte(fullMethod, '/')+1]
		return exempt[fullMethod] || exempt[service]
	}
}

// guardedStream is a stream whose Recv and Send return when its section should
// end. gRPC's own end only with the stream's context: one idle stream of a
// stale holder, or of a stopped holder that does not read, would lock out the
// next holder until its connection breaks.
type guardedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the section's context, which has the sequencer and ends with
// the lock.
func (s *guardedStream) Context() context.Context { return s.ctx }

// RecvMsg waits for a message or for the end of the section's context.
func (s *guardedStream) RecvMsg(m any) error {
	return s.whileInside(func() error { return s.ServerStream.RecvMsg(m) })
}

// SendMsg waits for room to send or for the end of the section's context.
func (s *guardedStream) SendMsg(m any) error {
	return s.whileInside(func() error { return s.ServerStream.SendMsg(m) })
}

// whileInside runs one operation of the stream (carried.Inside): so two operations of one direction never
// overlap. The one that is left behind ends after the handler has returned: gRPC then ends the stream.
func (s *guardedStream) whileInside(operation func() error) error {
	err, inside := carried.Inside(s.ctx, operation)
	if !inside {
		return s.cutOff()
	}
	return err
}

// cutOff returns why the stream must end.
func (s *guardedStream) cutOff() error {
	cause := context.Cause(s.ctx)
	if api.CodeOf(cause) == api.BadSequencer {
		return detailed(status.New(codes.FailedPrecondition, "the stream is cut off: "+cause.Error()), cause)
	}
	return status.FromContextError(s.ctx.Err()).Err()
}
