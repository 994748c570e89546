package frames

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// encode makes the frame of a request. The buffer begins with start bytes of its trace's frame, if any.
func (l *Link) encode(ctx context.Context, method string, request any) (b *buffer, start int, err error) {
	message, ok := request.(proto.Message)
	if !ok {
		return nil, 0, status.Errorf(codes.Internal, "a request of type %T is no message", request)
	}
	size := proto.Size(message)
	if size > l.length {
		return nil, 0, status.Errorf(codes.ResourceExhausted, "trying to send a message of %d bytes; the server takes at most %d", size, l.length)
	}
	left := time.Duration(0)
	if end, ok := ctx.Deadline(); ok {
		if left = time.Until(end); left <= 0 {
			return nil, 0, status.FromContextError(context.DeadlineExceeded).Err()
		}
	}
	trace := ""
	if l.cfg.Traceparent != nil {
		trace = l.cfg.Traceparent(ctx)
	}
	b = l.pool.get(2*HeaderSize + len(trace) + maxPrefix + size)
	if trace != "" {
		b.b = appendTrace(b.b, trace)
	}
	start = len(b.b)
	b.b = appendRequest(Header{Kind: KindRequest}.Append(b.b), method, left)
	data, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b.b, message)
	if err != nil {
		l.pool.put(b)
		return nil, 0, status.Errorf(codes.Internal, "encode the request: %v", err)
	}
	b.b = data
	return b, start, nil
}

func (l *Link) begin(ctx context.Context, method string, request any) (*exchange, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	frame, start, err := l.encode(ctx, method, request)
	if err != nil {
		return nil, err
	}
	select {
	case l.slots <- struct{}{}:
	default:
		select {
		case l.slots <- struct{}{}:
		case <-l.left:
			l.pool.put(frame)
			return nil, &NotSentError{Err: l.reason()}
		case <-ctx.Done():
			l.pool.put(frame)
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	x := &exchange{ready: make(chan struct{}, 1)}
	l.mu.Lock()
	if l.err != nil {
		err := l.err
		l.mu.Unlock()
		<-l.slots
		l.pool.put(frame)
		return nil, &NotSentError{Err: err}
	}
	l.last++
	x.number = l.last
	seal(frame.b[start:], x.number)
	if start > 0 {
		seal(frame.b[:start], x.number)
	}
	l.calls[x.number] = x
	l.beat.begin()
	at, write, _ := l.out.enqueue(frame, false) // it is open, because err is nil
	x.at = at
	l.mu.Unlock()
	if write {
		l.out.write()
	}
	return x, nil
}

func (l *Link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// nextReply returns a call's next reply, or io.EOF after success. If ctx ends first, the call is abandoned.
func (l *Link) nextReply(ctx context.Context, x *exchange) (*buffer, error) {
	for {
		l.mu.Lock()
		if len(x.replies) > 0 {
			b := x.replies[0]
			x.replies[0] = nil
			x.replies = x.replies[1:]
			x.unread -= len(b.b)
			l.mu.Unlock()
			return b, nil
		}
		ended, err := x.ended, x.err
		l.mu.Unlock()
		if ended && err == nil {
			return nil, io.EOF
		}
		if ended {
			return nil, err
		}
		select {
		case <-x.ready:
		case <-ctx.Done():
			l.abandon(x.number, status.FromContextError(ctx.Err()).Err())
		}
	}
}

func (l *Link) hasEnded(x *exchange) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return x.ended
}

func (l *Link) decode(b *buffer, reply any) error {
	message, ok := reply.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "a reply of type %T is no message", reply)
	}
	err := proto.Unmarshal(b.b, message)
	l.pool.put(b)
	if err != nil {
		return status.Errorf(codes.Internal, "decode the reply: %v", err)
	}
	return nil
}

// Invoke implements grpc.ClientConnInterface. It ignores options.
func (l *Link) Invoke(ctx context.Context, method string, request, reply any, _ ...grpc.CallOption) error {
	x, err := l.begin(ctx, method, request)
	if err != nil {
		return err
	}
	b, err := l.nextReply(ctx, x)
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Internal, "the server ended the call without a reply")
	}
	if err != nil {
		return err
	}
	return l.decode(b, reply)
}

// NewStream implements grpc.ClientConnInterface, for calls with one request. It ignores options.
func (l *Link) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if desc.ClientStreams {
		return nil, status.Error(codes.Unimplemented, "calls with several requests cannot be sent as frames")
	}
	if reason := l.reason(); reason != nil {
		return nil, &NotSentError{Err: reason}
	}
	return &replyStream{link: l, ctx: ctx, method: method}, nil
}

// replyStream implements grpc.ClientStream for a call with several replies.
type replyStream struct {
	link   *Link
	ctx    context.Context //nolint:containedctx // of the call, as with any stream
	method string
	x      *exchange
	stop   func() bool // stops the watch over ctx
}

func (*replyStream) Header() (metadata.MD, error) { return metadata.MD{}, nil }

func (*replyStream) Trailer() metadata.MD { return nil }

// CloseSend implements grpc.ClientStream. The request ends with its message.
func (*replyStream) CloseSend() error { return nil }

func (s *replyStream) Context() context.Context { return s.ctx }

func (s *replyStream) SendMsg(request any) error {
	if s.x != nil {
		return status.Error(codes.Internal, "the call has one request, which was sent")
	}
	x, err := s.link.begin(s.ctx, s.method, request)
	if err != nil {
		return err
	}
	s.x = x
	s.stop = context.AfterFunc(s.ctx, func() { s.link.abandon(x.number, status.FromContextError(s.ctx.Err()).Err()) })
	return nil
}

func (s *replyStream) RecvMsg(reply any) error {
	if s.x == nil {
		return status.Error(codes.Internal, "the request was not sent")
	}
	b, err := s.link.nextReply(s.ctx, s.x)
	if err != nil || s.link.hasEnded(s.x) { // many callers take the last reply without the end
		s.stop()
	}
	if err != nil {
		return err
	}
	return s.link.decode(b, reply)
}
