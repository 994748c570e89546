package frames

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// serverCall is a call, and the stream of a handler with several replies.
type serverCall struct {
	conn    *serverConn
	number  uint64
	method  *Method
	payload *buffer // the request's frame; nil once read
	message []byte  // a part of it
	left    time.Duration
	ctx     context.Context //nolint:containedctx // of the call
	cancel  context.CancelCauseFunc
	parking atomic.Pointer[parking] // the newest; nil unless its handler has called Park
	trace   string                  // its client's trace, or ""
}

var (
	_ grpc.ServerStream = (*serverCall)(nil)
	_ context.Context   = callContext{}
)

type callKey struct{}

// callContext is a call's context. Another one of package context would take more memory.
type callContext struct{ *serverCall }

func (c callContext) Deadline() (time.Time, bool) { return c.ctx.Deadline() }

func (c callContext) Done() <-chan struct{} { return c.ctx.Done() }

func (c callContext) Err() error { return c.ctx.Err() }

func (c callContext) Value(key any) any {
	if key == (callKey{}) {
		return c.serverCall
	}
	return c.ctx.Value(key)
}

// Traceparent returns the client's trace of a call, unchanged and of limited length; "" without a trace, or if
// ctx does not derive from a handler of a Server.
func Traceparent(ctx context.Context) string {
	if k, _ := ctx.Value(callKey{}).(*serverCall); k != nil {
		return k.trace
	}
	return ""
}

func (k *serverCall) parse(payload *buffer) error {
	name, left, message, ok := parseRequest(payload.b)
	if !ok {
		return status.Error(codes.InvalidArgument, "the frame of the request cannot be read")
	}
	k.payload, k.message, k.left = payload, message, left
	if k.method = k.conn.server.methods[string(name)]; k.method == nil {
		return status.Errorf(codes.Unimplemented, "unknown method %q", name)
	}
	return nil
}

func (k *serverCall) begin() {
	ctx := k.conn.ctx
	if k.conn.server.cfg.Tap != nil {
		ctx = k.conn.server.cfg.Tap(ctx)
	}
	if k.left == 0 {
		k.ctx, k.cancel = context.WithCancelCause(ctx)
		return
	}
	timed, stop := context.WithTimeout(ctx, k.left)
	ended, cancel := context.WithCancelCause(timed)
	k.ctx, k.cancel = ended, func(cause error) {
		cancel(cause)
		stop()
	}
}

func (k *serverCall) serve() { k.returned(k.conn.server.handle(k.method, k)) }

func (k *serverCall) returned(reply any, err error) {
	if !k.isParked(err) {
		k.answer(reply, err, k.conn.out.flush)
	}
}

// serveInTurn serves a prompt call in the goroutine that reads, which has no time to write.
func (k *serverCall) serveInTurn() {
	turns := k.conn.server.turns
	turns <- struct{}{}
	reply, err := k.conn.server.handle(k.method, k)
	<-turns
	if !k.isParked(err) {
		k.answer(reply, err, k.conn.out.write)
	}
}

// isParked reports whether a handler has parked the call.
func (k *serverCall) isParked(err error) bool {
	p := k.parking.Load()
	if !errors.Is(err, ErrParked) || p == nil {
		return false
	}
	p.advance()
	return true
}

func (k *serverCall) answer(reply any, err error, write func()) {
	k.cancel(errUnread)
	k.drop()
	if k.finish(reply, err) {
		write()
	}
	<-k.conn.running
	k.conn.handlers.Done()
}

// finish answers a call, unless its client has abandoned it. write says that the caller has to have the answer
// written.
func (k *serverCall) finish(reply any, err error) (write bool) {
	var frame *buffer
	if reply != nil && err == nil {
		frame, err = k.encode(KindLast, reply)
	}
	if frame == nil {
		frame = k.conn.server.pool.get(HeaderSize)
		frame.b = AppendStatus(frame.b, k.number, err)
	}
	c := k.conn
	c.mu.Lock()
	defer c.beat.end()
	if c.calls[k.number] != k {
		c.mu.Unlock()
		c.server.pool.put(frame)
		return false
	}
	delete(c.calls, k.number)
	_, write, _ = c.out.enqueue(frame, true)
	done := c.leaving && len(c.calls) == 0
	c.mu.Unlock()
	if done {
		c.out.end()
	}
	return write
}

func (k *serverCall) encode(kind Kind, reply any) (*buffer, error) {
	message, ok := reply.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "a reply of type %T is no message", reply)
	}
	b := k.conn.server.pool.get(HeaderSize + proto.Size(message))
	data, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(Header{Kind: kind}.Append(b.b), message)
	if err != nil {
		k.conn.server.pool.put(b)
		return nil, status.Errorf(codes.Internal, "encode the reply: %v", err)
	}
	b.b = data
	seal(b.b, k.number)
	return b, nil
}

func (k *serverCall) drop() {
	if k.payload != nil {
		k.conn.server.pool.put(k.payload)
		k.payload, k.message = nil, nil
	}
}

// RecvMsg implements grpc.ServerStream: the first message is the request, the only one. A type with a method
// Decode decodes it itself, or not.
func (k *serverCall) RecvMsg(request any) error {
	if k.payload == nil {
		return io.EOF
	}
	if own, ok := request.(interface{ Decode(message []byte) error }); ok {
		err := own.Decode(k.message)
		k.drop()
		return err
	}
	message, ok := request.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "a request of type %T is no message", request)
	}
	err := proto.Unmarshal(k.message, message)
	k.drop()
	if err != nil {
		return status.Errorf(codes.Internal, "decode the request: %v", err)
	}
	return nil
}

// SendMsg implements grpc.ServerStream. It does not wait for the write.
func (k *serverCall) SendMsg(reply any) error {
	frame, err := k.encode(KindReply, reply)
	if err != nil {
		return err
	}
	c := k.conn
	c.mu.Lock()
	open := c.calls[k.number] == k
	write := false
	if open {
		_, write, open = c.out.enqueue(frame, false)
	} else {
		c.server.pool.put(frame)
	}
	c.mu.Unlock()
	if write {
		c.out.write()
	}
	if !open {
		return status.Error(codes.Canceled, "the call has ended") // its context ends a moment later
	}
	return nil
}

func (k *serverCall) Context() context.Context { return callContext{k} }

// SetHeader implements grpc.ServerStream. There are no headers.
func (*serverCall) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream. There are no headers.
func (*serverCall) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream. There are no trailers.
func (*serverCall) SetTrailer(metadata.MD) {}

// errUnread is why the context of an abandoned call ends.
var errUnread = fmt.Errorf("the client does not want an answer any more: %w", context.Canceled)

// Method is a method of a service.
type Method struct {
	Name   string // in full
	Impl   any
	Unary  grpc.MethodHandler // nil with several replies
	Stream grpc.StreamHandler

	prompt bool // see ServerConfig.Prompt
}

// Handle calls the method, which receives its request from stream. intercept is called between a request and a
// handler with one reply; nil: nothing is.
func (m *Method) Handle(stream grpc.ServerStream, intercept grpc.UnaryServerInterceptor) (reply any, err error) {
	if m.Unary != nil {
		return m.Unary(m.Impl, stream.Context(), stream.RecvMsg, intercept)
	}
	return nil, m.Stream(m.Impl, stream)
}

func (s *Server) handle(m *Method, stream grpc.ServerStream) (reply any, err error) {
	if s.cfg.Serve == nil {
		return m.Handle(stream, nil)
	}
	return s.cfg.Serve(m, stream)
}
