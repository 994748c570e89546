package wire

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/loglimit"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
)

// service implements the RPCs; see the package comment.
type service struct {
	pb.UnsafeChubbyServer // so that the compiler names an unserved RPC
	pb.UnsafeCellServer
	cfg      Config
	sessions verified[api.SessionID]
	owners   verified[string] // of sessions
	handles  verified[master.Handle]
	refused  loglimit.Refusals // calls without the right
	slow     loglimit.Refusals // slow calls
}

// maxCall limits calls without a client's deadline, except KeepAlive and Acquire. It exceeds the longest wait
// of a change.
const maxCall = master.MaxChangeWait + 15*time.Second

// options limits what gRPC keeps for a stranger. Windows are fixed, since adaptive ones grow up to 16 MiB for
// each call. A call's window is the smallest possible.
func (s *service) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(tapCall),
		grpc.ForceServerCodecV2(exactCodec{encoding.GetCodecV2(proto.Name)}),
		grpc.StaticStreamWindowSize(1<<16 - 1), grpc.StaticConnWindowSize(1 << 20),
		grpc.MaxRecvMsgSize(api.MaxCommand),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(8 << 10),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.ReadBufferSize(0), grpc.WriteBufferSize(8 << 10),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingTime, Timeout: pingTimeout, MaxConnectionIdle: maxIdle}),
		grpc.ChainStreamInterceptor(s.stream),
	}
}

// maxStreams limits the calls of a connection. It may carry many processes' sessions, each with a parked
// KeepAlive and a call or a queue position, so 2,000 calls are a thousand such sessions. 100,000 sessions need
// a hundred connections, from several addresses: heldLimits closes those of one address above some 60,000 parked calls.
const maxStreams = 2_000

// unary serves a call with one reply, after the door has let it in.
func (s *service) unary(ctx context.Context, call *call, method string, request any, next grpc.UnaryHandler) (reply any, err error) {
	call.identify(request)
	var trace Trace
	defer func() { s.count(ctx, call, method, request, trace, err) }() // after recovered
	defer func() { s.endTrace(trace, request, err) }()                 // after recovered
	//mutant: before := s.witness(ctx, pb.Chubby_GetStat_FullMethodName, request) //by TestAudit of ./cell
	before := s.witness(ctx, method, request)
	defer func() { s.audit(ctx, before, method, request, reply, err) }() // after recovered
	defer s.recovered(method, &err)
	defer func() {
		if !errors.Is(err, frames.ErrParked) { // else park does this
			call.served()
		}
	}()
	if trace = s.trace(ctx, method); trace != nil {
		ctx = steps.With(ctx, trace)
	}
	if method != pb.Chubby_KeepAlive_FullMethodName {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxCall)
		defer cancel()
	}
	if err := s.checkOwner(ctx, request); err != nil {
		return nil, err
	}
	if reply, err = next(ctx, request); errors.Is(err, frames.ErrParked) {
		return nil, err
	}
	return s.answered(call, reply, err)
}

// arrive records a call's arrival, for count.
func (s *service) arrive(call *call) {
	if call != nil && s.cfg.Answered != nil {
		call.arrived = s.cfg.Stopwatch()
	}
}

// count reports a call that has ended. A parked call has not.
func (s *service) count(ctx context.Context, call *call, method string, request any, trace Trace, err error) {
	if errors.Is(err, frames.ErrParked) {
		return
	}
	code := api.OK
	if err != nil {
		code = api.CodeOf(pb.Error(err))
	}
	if code == api.PermissionDenied || code == api.Unauthenticated {
		s.logRefusal(ctx, call, method, request, trace, err)
	}
	if call != nil && s.cfg.Answered != nil {
		took := s.cfg.Stopwatch() - call.arrived
		s.cfg.Answered(method, code, took, traceID(trace))
		if own := call.own(method, took); own >= steps.Slow {
			s.logSlow(ctx, call, method, request, trace, took, own)
		}
	}
}

func (s *service) answered(call *call, reply any, err error) (any, error) {
	if err != nil {
		return nil, status(err)
	}
	if err := call.answer(reply); err != nil {
		return nil, status(s.fail("answer", err))
	}
	return reply, nil
}

// park lets a call wait without a goroutine, and serves rest as its beginning: see frames.Park.
func (s *service) park(ctx context.Context, method string, rest func() (any, error)) (resume func()) {
	return frames.Park(ctx, func() (reply any, err error) {
		call := callOf(ctx)
		defer func() { s.count(ctx, call, method, nil, nil, err) }() // after recovered; parked calls are not traced
		defer s.recovered(method, &err)
		defer func() {
			if !errors.Is(err, frames.ErrParked) { // again
				call.served()
			}
		}()
		if reply, err = rest(); errors.Is(err, frames.ErrParked) {
			return nil, err
		}
		return s.answered(call, reply, err)
	})
}

func (s *service) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	call := callOf(stream.Context())
	s.arrive(call)
	replies := &answers{ServerStream: stream, service: s, method: info.FullMethod, call: call}
	defer func() { s.count(stream.Context(), call, info.FullMethod, replies.request, replies.trace, err) }() // after recovered
	defer func() { s.endTrace(replies.trace, replies.request, err) }()                                       // after recovered
	defer func() { s.audit(stream.Context(), replies.before, info.FullMethod, replies.request, nil, err) }() // after recovered
	defer s.recovered(info.FullMethod, &err)
	if err := s.checkConnection(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	replies.trace = s.trace(stream.Context(), info.FullMethod)
	if err := call.serve(info.FullMethod, requestSize{}); err != nil { // RecvMsg checks the request's length
		return status(s.fail("call", err))
	}
	defer func() {
		if !errors.Is(err, frames.ErrParked) { // else park does this
			call.served()
		}
	}()
	return status(next(srv, replies))
}

// answers is a stream that counts its replies.
type answers struct {
	grpc.ServerStream
	call    *call
	service *service
	method  string
	request any     // nil before it has arrived
	before  witness // at its arrival
	trace   Trace   // nil if not traced
}

func (a *answers) Context() context.Context {
	if a.trace == nil {
		return a.ServerStream.Context()
	}
	return steps.With(a.ServerStream.Context(), a.trace)
}

// RecvMsg implements grpc.ServerStream. See door.
func (a *answers) RecvMsg(m any) error {
	refusal, err := a.service.decode(a.ServerStream.RecvMsg, m, func(size requestSize) error {
		if conn := connOf(a.Context()); conn != nil && conn.refused() != nil {
			return conn.refused() // its certificate or token may have become invalid meanwhile
		}
		return a.call.weigh(a.method, size)
	})
	if err = cmp.Or(refusal, err); err != nil {
		return err
	}
	a.request, a.before = m, a.service.witness(a.Context(), a.method, m)
	a.call.identify(m)
	return a.service.checkOwner(a.Context(), m)
}

func (a *answers) SendMsg(m any) error {
	if err := a.call.answer(m); err != nil {
		return err
	}
	return a.ServerStream.SendMsg(m)
}

// checkConnection returns an error if a request is compressed, its connection refused, or its client unknown.
// It precedes every other check.
func (s *service) checkConnection(ctx context.Context, method string) error {
	if err := checkPlain(ctx); err != nil {
		return status(s.fail("call", err))
	}
	conn := connOf(ctx)
	if conn == nil {
		return nil
	}
	if err := checkMetadata(ctx, conn); err != nil {
		return status(s.fail("authenticate", err))
	}
	if method == pb.Cell_Authenticate_FullMethodName && conn.takesToken() {
		return nil
	}
	return s.checkKnown(ctx)
}

// checkPlain rejects a compressed request: an account counts wire bytes, and gRPC decompresses with any
// compressor of a linked package.
func checkPlain(ctx context.Context) error {
	call, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if !ok || call.RecvCompress() == "" || call.RecvCompress() == encoding.Identity { // frames are never compressed
		return nil
	}
	return api.Errorf(api.InvalidArgument, "the request is compressed (grpc-encoding: %.20q), which no replica takes: send it uncompressed", call.RecvCompress())
}

func (s *service) checkKnown(ctx context.Context) error {
	if conn := connOf(ctx); conn != nil {
		if err := conn.refused(); err != nil {
			return status(s.fail("connect", err))
		}
	}
	return nil
}

// status encodes an error, except gRPC's own (Unimplemented).
func status(err error) error {
	var e *api.Error
	if err == nil || !errors.As(err, &e) && api.CodeOf(err) == api.Uncertain && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return pb.Status(err)
}

// recovered turns a panic in a call into an error of that call, and logs it as a bug. The panic cannot reach
// the state machine.
func (s *service) recovered(method string, err *error) {
	//mutant: if p := any(nil); p != nil {
	if p := recover(); p != nil {
		s.cfg.Logger.Error("a call panicked", "event", "bug", "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = pb.Status(&api.Error{Code: api.Uncertain, Op: method, Replica: s.cfg.ID, Message: "the replica failed to serve the call: this is a bug; its log says more"})
	}
}
