package wire

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// maxCall limits calls without a client's deadline, except KeepAlive and Acquire. It exceeds the longest wait
// of a change.
const maxCall = master.MaxChangeWait + 15*time.Second

// serve serves a call. Nothing of it is decoded before its caller is known and the call is accepted; generated
// code would decode first.
func (s *service) serve(m *frames.Method, stream grpc.ServerStream) (reply any, err error) {
	c := callOf(stream.Context())
	c.ServerStream, c.service, c.method, c.rpc = stream, s, m.Name, s.rpcs[m.Name]
	c.arrive()
	defer func() { c.ended(reply, err) }() // after recovered
	defer s.recovered(c.method, &err)
	if err := s.checkConnection(c); err != nil {
		return nil, err
	}
	return c.answered(m.Handle(c, c.intercept))
}

// arrive records a call's arrival, for ended.
func (c *call) arrive() {
	if c.service.cfg.Answered != nil {
		c.arrived = c.service.cfg.Stopwatch()
	}
}

// intercept calls a handler with one reply.
func (c *call) intercept(_ context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx := c.Context()
	if !c.rpc.keepsAlive {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxCall)
		defer cancel()
	}
	return next(ctx, request)
}

// answered counts a handler's last reply, and encodes its error.
func (c *call) answered(reply any, err error) (any, error) {
	switch {
	case errors.Is(err, frames.ErrParked):
		c.asked, c.unread = nil, nil // they take memory, and are not needed any more
		return nil, err
	case err != nil:
		return nil, status(err)
	case reply == nil:
		return nil, nil
	}
	if err := c.countReply(reply); err != nil {
		return nil, status(c.service.fail("answer", err))
	}
	return reply, nil
}

// ended records the end of a call. A parked one has not ended.
func (c *call) ended(reply any, err error) {
	if errors.Is(err, frames.ErrParked) {
		return
	}
	c.served()
	s, code := c.service, api.OK
	if err != nil {
		code = api.CodeOf(pb.Error(err))
	}
	if c.asked != nil || code == api.Unauthenticated {
		s.audit(c.Context(), c.before, c.method, c.asked, reply, err)
	}
	if c.trace != nil {
		c.trace.End(s.traceSubject(c.asked), code)
	}
	if code == api.PermissionDenied || code == api.Unauthenticated {
		s.logRefusal(c, err)
	}
	if s.cfg.Answered != nil {
		took := s.cfg.Stopwatch() - c.arrived
		s.cfg.Answered(c.method, code, took, c.TraceID())
		if own := c.ownTime(took); own >= steps.Slow {
			s.logSlow(c, took, own)
		}
	}
}

// park lets a call wait without a goroutine, and serves rest as its beginning: see frames.Park.
func (s *service) park(ctx context.Context, prompt bool, rest func() (any, error)) (resume func()) {
	return frames.Park(ctx, prompt, func() (reply any, err error) {
		c := callOf(ctx)
		defer func() { c.ended(reply, err) }() // after recovered
		defer s.recovered(c.method, &err)
		return c.answered(rest())
	})
}

// RecvMsg implements grpc.ServerStream: it decodes the request, or returns why it is not served. Over gRPC it
// may still be arriving.
func (c *call) RecvMsg(m any) error {
	c.unread, _ = m.(proto.Message) // as all requests are
	err := c.ServerStream.RecvMsg((*sealed)(c))
	s, ctx := c.service, c.ServerStream.Context()
	if c.refusal != nil {
		return status(s.fail("call", c.refusal))
	}
	if err != nil {
		c.arrive() // no time was spent on it: its request never came
		return err
	}
	c.asked, c.named = m, requestIDOf(m)
	//mutant: c.before = s.witness(ctx, onlyRefusals, m) //by TestAudit of ./cell
	c.before = s.witness(ctx, c.rpc.audited, m)
	c.trace = s.beginTrace(c)
	return s.checkOwner(ctx, m)
}

// SendMsg implements grpc.ServerStream.
func (c *call) SendMsg(m any) error {
	if err := c.countReply(m); err != nil {
		return err
	}
	return c.ServerStream.SendMsg(m)
}

// sealed is a call whose request is not decoded yet. Both transports accept it as a message: frames by its
// method Decode, gRPC by exactCodec.
type sealed call

// Decode decodes the request, or records why not. It returns no error: gRPC would answer that itself.
func (d *sealed) Decode(wire []byte) error {
	c := (*call)(d)
	c.refusal = c.decode(wire)
	return nil
}

func (c *call) decode(wire []byte) error {
	c.arrive()
	size, malformed := sizeOf(wire, c.unread.ProtoReflect().Descriptor())
	if err := c.of.conn.refusedFor(c.rpc); err != nil { // its certificate or token may have become invalid meanwhile
		return err
	}
	if err := c.admit(size); err != nil {
		return err
	}
	if malformed != nil {
		return malformed
	}
	if err := proto.Unmarshal(wire, c.unread); err != nil {
		return api.Errorf(api.InvalidArgument, "the request cannot be read: %v", err)
	}
	return nil
}

// checkConnection returns an error if a request is compressed, its connection refused, or its client unknown.
// It precedes every other check.
func (s *service) checkConnection(c *call) error {
	ctx, conn := c.Context(), c.of.conn
	if err := checkPlain(ctx); err != nil {
		return status(s.fail("call", err))
	}
	if err := checkMetadata(ctx, conn); err != nil {
		return status(s.fail("authenticate", err))
	}
	if err := conn.refusedFor(c.rpc); err != nil {
		return status(s.fail("connect", err))
	}
	return nil
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

// checkOwner rejects a call in a session of another principal: a session's token alone is useless.
func (s *service) checkOwner(ctx context.Context, request any) error {
	q, ok := request.(interface{ GetCaller() *pb.Caller })
	caller := principalOf(ctx)
	if !ok || caller == "" {
		return nil
	}
	m, err := s.cfg.Replica.Master()
	if err == nil {
		var owner string
		owner, err = s.ownerOf(m, q.GetCaller().GetSession())
		if err == nil && owner != caller {
			callOf(ctx).foreign = true
			err = api.Errorf(api.SessionExpired, "this is no session of %q; open a new one", caller)
		}
	}
	//mutant: if err != nil && m != nil {
	if err != nil {
		return status(s.fail("call", err))
	}
	return nil
}

// checkMetadata takes the token in the metadata of a call, if any.
func checkMetadata(ctx context.Context, conn *heardConn) error {
	if conn.identity.Load() == nil {
		return nil // clients are not identified
	}
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) == 0 {
		return nil
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "bearer") || token == "" {
		return api.Errorf(api.Unauthenticated, "the metadata authorization has to be: Bearer TOKEN")
	}
	return conn.authenticate(ctx, strings.TrimSpace(token))
}

// exactCodec decodes requests when they are accepted. It encodes long messages into buffers of their exact
// size: gRPC's pool has none between 32 KiB and 1 MiB.
type exactCodec struct{ encoding.CodecV2 }

func (c exactCodec) Unmarshal(data mem.BufferSlice, v any) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return v.(*sealed).Decode(whole.ReadOnlyData()) // as every call receives its request
}

func (c exactCodec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(proto.Message)
	if !ok || proto.Size(message) <= 32<<10 {
		return c.CodecV2.Marshal(v)
	}
	data, err := proto.Marshal(message)
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}
