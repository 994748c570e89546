package frames

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// LinkConfig configures a link.
type LinkConfig struct {
	Times Times
	// MaxReply is the maximum of received messages, in bytes.
	MaxReply int
	// Traceparent returns a call's trace in the form of W3C Trace Context, or "". nil: no call is traced.
	Traceparent func(ctx context.Context) string
}

// Link is the client's end of a connection. It does not reconnect: after the connection's end, or when its
// server leaves, calls fail. As with gRPC, a server's status is a call's error; a broken connection makes it
// codes.Unavailable.
type Link struct {
	cfg    LinkConfig
	conn   net.Conn
	reader *bufio.Reader
	pool   buffers
	out    outlet
	beat   pulse
	slots  chan struct{} // one element for each call in flight
	length int           // the server's maximum of a message
	left   chan struct{} // closed when err is set
	gone   chan struct{} // closed when shut is set

	reading sync.WaitGroup // the goroutine that reads

	mu    sync.Mutex // guards what follows; out.mu may be taken under it
	calls map[uint64]*exchange
	last  uint64 // number of the newest call
	err   error  // why no more calls begin; nil while they do
	shut  bool   // the connection is closed
}

var _ grpc.ClientConnInterface = (*Link)(nil)

// NotSentError says that a call was not sent: it may be sent again over another connection.
type NotSentError struct{ Err error }

// Error implements error.
func (e *NotSentError) Error() string { return e.Err.Error() }

// Unwrap returns why it was not sent.
func (e *NotSentError) Unwrap() error { return e.Err }

// GRPCStatus is for package status.
func (e *NotSentError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// readBuffer is how much one read takes: messages are small.
const readBuffer = 4 << 10

// Open makes a link of a new connection, and waits for the server's hello until ctx ends. On failure it closes
// the connection, with ErrOtherProtocol if the other end is no Server.
func Open(ctx context.Context, conn net.Conn, cfg LinkConfig) (*Link, error) {
	l := &Link{cfg: cfg, conn: conn, reader: bufio.NewReaderSize(conn, readBuffer), calls: map[uint64]*exchange{}, left: make(chan struct{}), gone: make(chan struct{})}
	theirs, err := greet(ctx, conn, l.reader, hello{length: uint32(min(cfg.MaxReply, math.MaxUint32))})
	if err != nil {
		return nil, err
	}
	l.slots, l.length = make(chan struct{}, min(theirs.calls, maxSlots)), int(min(theirs.length, math.MaxInt32))
	clock := startStopwatch()
	l.out = outlet{conn: conn, clock: clock, pool: &l.pool, stopped: l.end, wake: newWake()}
	l.beat = pulse{
		clock: clock, times: cfg.Times, since: &l.out.since, dead: l.end,
		ping: func() { l.out.control(Header{Kind: KindPing, Call: 1}) },
		idle: l.endIdle,
	}
	l.beat.start()
	l.reading.Go(l.read)
	return l, nil
}

// maxSlots limits the calls in flight, whatever the server says.
const maxSlots = 1 << 20

// Left is closed when the link takes no more calls. Calls in flight may still be answered.
func (l *Link) Left() <-chan struct{} { return l.left }

// Wait returns after the end of the connection and of the link's goroutines.
func (l *Link) Wait() {
	<-l.gone
	l.reading.Wait()
	l.out.running.Wait()
}

// Close breaks the connection. Wait waits for its end.
func (l *Link) Close() { l.end(errors.New("the connection was closed")) }

// read reads frames until the connection ends.
func (l *Link) read() {
	var head [HeaderSize]byte
	for {
		h, err := readHeader(l.reader, &head)
		if err == nil {
			l.beat.hear()
			err = l.take(h)
		}
		if err != nil {
			l.end(err)
			return
		}
	}
}

func (l *Link) take(h Header) error {
	payload, err := readPayload(l.reader, h, l.cfg.MaxReply+maxPrefix, &l.pool)
	if errors.Is(err, errTooLong) {
		l.fail(h.Call, status.Errorf(codes.ResourceExhausted, "received a message of %d bytes; at most %d are allowed", h.Length, l.cfg.MaxReply))
		return nil
	}
	if err != nil {
		return err
	}
	switch h.Kind {
	case KindReply, KindLast, KindStatus:
		return l.deliver(h, payload)
	case KindPing:
		l.out.control(Header{Kind: KindPong, Call: h.Call})
	case KindLeave:
		l.leave(h.Call)
	}
	l.pool.put(payload)
	return nil
}

// deliver hands a reply to its call. It drops a reply to an abandoned call.
func (l *Link) deliver(h Header, payload *buffer) error {
	var told error
	if h.Kind == KindStatus {
		var err error
		if told, err = parseStatus(payload.b); err != nil {
			return err
		}
		l.pool.put(payload)
		payload = nil
	}
	l.mu.Lock()
	x := l.calls[h.Call]
	if x == nil {
		l.mu.Unlock()
		if payload != nil {
			l.pool.put(payload)
		}
		return nil
	}
	overrun := false
	if payload != nil {
		overrun = x.add(payload)
	}
	if h.Kind != KindReply {
		l.finish(h.Call, x, told)
	}
	x.notify()
	done := l.isDone()
	l.mu.Unlock()
	switch {
	case overrun:
		l.abandon(h.Call, status.Errorf(codes.ResourceExhausted, "more than %d bytes of replies wait to be read", maxUnread))
	case done:
		l.end(errLeft)
	}
	return nil
}

// parseStatus reads how a call ended; told is nil after success.
func parseStatus(b []byte) (told, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	s := &spb.Status{}
	if err := proto.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("read a status: %w", err)
	}
	return status.ErrorProto(s), nil
}

// fail ends a call with a local error, unless it has ended.
func (l *Link) fail(call uint64, err error) {
	l.mu.Lock()
	if x := l.calls[call]; x != nil {
		l.finish(call, x, err)
		x.notify()
	}
	done := l.isDone()
	l.mu.Unlock()
	if done {
		l.end(errLeft)
	}
}

// abandon ends a call with an error, unless it has ended, and notifies the server.
func (l *Link) abandon(call uint64, err error) {
	l.mu.Lock()
	_, open := l.calls[call]
	l.mu.Unlock()
	if open {
		l.out.control(Header{Kind: KindCancel, Call: call})
		l.fail(call, err)
	}
}

// finish removes an open call; the caller holds mu.
func (l *Link) finish(call uint64, x *exchange, err error) {
	delete(l.calls, call)
	x.ended, x.err = true, err
	l.beat.end()
	<-l.slots
}

// isDone reports whether the server leaves and has answered everything; the caller holds mu.
func (l *Link) isDone() bool { return l.err != nil && !l.shut && len(l.calls) == 0 }

var errLeft = errors.New("the server closes the connection")

// leave records that the server takes no calls after a number, and has served none of them.
func (l *Link) leave(last uint64) {
	l.mu.Lock()
	if l.err == nil {
		l.err = errLeft
		close(l.left)
	}
	for call, x := range l.calls {
		if call > last {
			l.finish(call, x, &NotSentError{Err: errLeft})
			x.notify()
		}
	}
	done := l.isDone()
	l.mu.Unlock()
	if done {
		l.end(errLeft)
	}
}

// endIdle closes the connection unless a call has begun.
func (l *Link) endIdle() {
	l.mu.Lock()
	idle := len(l.calls) == 0
	if idle && l.err == nil {
		l.err = errors.New("the connection was not used")
		close(l.left)
	}
	l.mu.Unlock()
	if idle {
		l.end(errLeft)
	}
}

func (l *Link) end(err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("the server closed the connection")
	}
	l.mu.Lock()
	if l.shut {
		l.mu.Unlock()
		return
	}
	l.shut = true
	close(l.gone)
	if l.err == nil {
		l.err = err
		close(l.left)
	}
	begun := l.out.close()
	for call, x := range l.calls {
		//mutant: if begun >= 0 { //by TestBrokenConnection of ./internal/frames
		if x.at >= begun {
			l.finish(call, x, &NotSentError{Err: err})
		} else {
			l.finish(call, x, status.Errorf(codes.Unavailable, "the connection ended before the call was answered: %v", err))
		}
		x.notify()
	}
	l.mu.Unlock()
	_ = l.conn.Close() // an error does not matter any more
	l.beat.stop()
}

// exchange is a call of a link. Link.mu guards its variable fields.
type exchange struct {
	number uint64
	at     uint64        // its request's position in what was put
	ready  chan struct{} // has an element after a change

	replies []*buffer
	unread  int // bytes of these
	ended   bool
	err     error // of its end; nil after success
}

// maxUnread limits the unread replies of a call, in bytes.
const maxUnread = 4 << 20

func (x *exchange) add(payload *buffer) (overrun bool) {
	x.replies = append(x.replies, payload)
	x.unread += len(payload.b)
	return x.unread > maxUnread && len(x.replies) > 1
}

func (x *exchange) notify() {
	select {
	case x.ready <- struct{}{}:
	default:
	}
}

// greet exchanges hellos until ctx ends. Then, and after an error, the connection is closed.
func greet(ctx context.Context, conn net.Conn, r io.Reader, ours hello) (theirs hello, err error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	if _, err = conn.Write(ours.append(nil)); err == nil {
		theirs, err = readHello(r)
	}
	if !stop() && ctx.Err() != nil {
		return hello{}, fmt.Errorf("the other end does not say hello: %w", context.Cause(ctx))
	}
	if err != nil {
		_ = conn.Close()
		if !errors.Is(err, ErrOtherProtocol) { // it ended silently
			err = fmt.Errorf("%w: %w", ErrOtherProtocol, err)
		}
	}
	return theirs, err
}
