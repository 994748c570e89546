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

// service is what clients talk to: thin adapters that decode, validate, make one
// call of the master, and encode. A replica that is not the master answers
// NotMaster, but for the Cell service, which every replica serves.
type service struct {
	pb.UnsafeChubbyServer // so that the compiler names an RPC that is not served
	pb.UnsafeCellServer
	cfg      Config
	sessions verified[api.SessionID]
	owners   verified[string] // of sessions
	handles  verified[master.Handle]
	refused  loglimit.Refusals // calls for want of a right
	slow     loglimit.Refusals // calls that took long
}

// maxCall bounds calls whose clients set no deadline of their own; KeepAlive and
// Acquire wait as long as they must. It outlasts the longest wait of a change.
const maxCall = master.MaxChangeWait + 15*time.Second

// options bounds what gRPC itself keeps for a stranger. Windows are fixed: those that
// gRPC adapts grow up to 16 MiB for each call. That of a call is the smallest there is.
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

// maxStreams bounds the calls of a connection. It may carry the sessions of many
// processes, each with a KeepAlive parked and a call or a place in a queue: 2,000
// calls are a thousand such sessions, and 100,000 sessions need a hundred
// connections, from several addresses: the parked calls of one address are closed above
// some 60,000 (heldLimits).
const maxStreams = 2_000

// unary serves a call that has one reply, and was let in.
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
		if !errors.Is(err, frames.ErrParked) { // else park does what follows
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

// arrive notes when a call is served first, for count.
func (s *service) arrive(call *call) {
	if call != nil && s.cfg.Answered != nil {
		call.arrived = s.cfg.Stopwatch()
	}
}

// count tells of a call that has ended. One that waits without a goroutine has not.
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

// answered returns what a call is answered with.
func (s *service) answered(call *call, reply any, err error) (any, error) {
	if err != nil {
		return nil, status(err)
	}
	if err := call.answer(reply); err != nil {
		return nil, status(s.fail("answer", err))
	}
	return reply, nil
}

// park has a call wait without a goroutine: see frames.Park. rest is served as the beginning
// of the call was.
func (s *service) park(ctx context.Context, method string, rest func() (any, error)) (resume func()) {
	return frames.Park(ctx, func() (reply any, err error) {
		call := callOf(ctx)
		defer func() { s.count(ctx, call, method, nil, nil, err) }() // after recovered; what is parked is not traced
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
	if err := call.serve(info.FullMethod, requestSize{}); err != nil { // RecvMsg sees how long the request is
		return status(s.fail("call", err))
	}
	defer func() {
		if !errors.Is(err, frames.ErrParked) { // else park does what follows
			call.served()
		}
	}()
	return status(next(srv, replies))
}

// answers is a stream whose replies are counted.
type answers struct {
	grpc.ServerStream
	call    *call
	service *service
	method  string
	request any     // that has arrived; nil before
	before  witness // when it had
	trace   Trace   // nil if the call is not traced
}

// Context implements grpc.ServerStream.
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
			return conn.refused() // its certificate or token may have ended meanwhile
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

// SendMsg implements grpc.ServerStream.
func (a *answers) SendMsg(m any) error {
	if err := a.call.answer(m); err != nil {
		return err
	}
	return a.ServerStream.SendMsg(m)
}

// checkConnection returns what a call is answered, before anything else is looked at, if its
// request is compressed, its connection is refused, or its client is not known.
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

// checkPlain refuses a request that is compressed: an account counts what is on the wire, and gRPC decompresses whatever a package
// that is linked has registered a compressor for.
func checkPlain(ctx context.Context) error {
	call, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if !ok || call.RecvCompress() == "" || call.RecvCompress() == encoding.Identity { // nothing is compressed in frames
		return nil
	}
	return api.Errorf(api.InvalidArgument, "the request is compressed (grpc-encoding: %.20q), which no replica takes: send it uncompressed", call.RecvCompress())
}

// checkKnown returns what a call over a connection that is refused is answered.
func (s *service) checkKnown(ctx context.Context) error {
	if conn := connOf(ctx); conn != nil {
		if err := conn.refused(); err != nil {
			return status(s.fail("connect", err))
		}
	}
	return nil
}

// status encodes an error; what gRPC itself made (Unimplemented) stays as it is.
func status(err error) error {
	var e *api.Error
	if err == nil || !errors.As(err, &e) && api.CodeOf(err) == api.Uncertain && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return pb.Status(err)
}

// recovered turns a panic in one call into an error of that call. It is a bug,
// and is logged as one; the state machine is not reached by it.
func (s *service) recovered(method string, err *error) {
	//mutant: if p := any(nil); p != nil {
	if p := recover(); p != nil {
		s.cfg.Logger.Error("a call panicked", "event", "bug", "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = pb.Status(&api.Error{Code: api.Uncertain, Op: method, Replica: s.cfg.ID, Message: "the replica failed to serve the call: this is a bug; its log says more"})
	}
}
