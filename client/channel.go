package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// channel carries calls to one replica, over one connection (a link) at a time. Like a grpc.ClientConn, it
// connects for a call, which waits, and again after a link has ended. After a failure it retries at growing
// intervals while there are calls, which fail at once.
//
// It speaks frames with a replica that knows them, otherwise gRPC. Each new connection asks, so an upgraded
// replica gets frames from the next one on.
type channel struct {
	target    *target
	lastHeard atomic.Int64 // of its last connect or answer: a session.Instant

	running sync.WaitGroup  // of connect; Add only under mu, and not after closed
	life    context.Context //nolint:containedctx // of this: ended by Close
	stop    context.CancelFunc

	mu      sync.Mutex // guards what follows; take no mutex under it
	state   connectivity.State
	link    link            // when Ready
	err     error           // why the last attempt failed, when TransientFailure
	changed chan struct{}   // closed at each change of these
	used    session.Instant // when the last call began
	again   bool            // a link existed before
}

// link is one connection. It does not reconnect.
type link interface {
	grpc.ClientConnInterface
	Left() <-chan struct{} // closed when it rejects further calls
	Close()                // breaks the connection
	Wait()                 // returns when it has ended
}

func newChannel(t *target) *channel {
	c := &channel{target: t, state: connectivity.Idle, changed: make(chan struct{})}
	c.life, c.stop = context.WithCancel(t.pool.values)
	c.noteHeard()
	return c
}

func (c *channel) noteHeard() { c.lastHeard.Store(int64(c.target.pool.cfg.Clock())) }

// Close breaks the connection, and waits for its end. Calls fail. Over gRPC it may take some seconds if the
// connection accepts no data.
func (c *channel) Close() {
	c.setState(connectivity.Shutdown, nil, nil)
	c.stop()
	c.running.Wait()
}

// Connect starts to connect, if there is no connection.
func (c *channel) Connect() { _, _, _ = c.look(true) }

func (c *channel) GetState() connectivity.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *channel) setState(state connectivity.State, l link, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != connectivity.Shutdown {
		c.become(state, l, err)
	}
}

// become changes the state, and wakes the waiters; mu is held.
func (c *channel) become(state connectivity.State, l link, err error) {
	c.state, c.link, c.err = state, l, err
	close(c.changed)
	c.changed = make(chan struct{})
}

// Invoke implements grpc.ClientConnInterface. If its link ended before the call was sent, it uses the next.
func (c *channel) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	method = cmp.Or(chubbypb.FormerName(method), method)
	for attempt := 1; ; attempt++ {
		l, err := c.pick(ctx, options)
		if err != nil {
			return err
		}
		err = l.Invoke(ctx, method, request, reply, options...)
		var unsent *frames.NotSentError
		if errors.As(err, &unsent) && attempt < maxAttempts {
			continue
		}
		if err == nil || isAnswer(err) {
			c.noteHeard()
		}
		return explainText(request, err)
	}
}

const maxAttempts = 3

// NewStream implements grpc.ClientConnInterface.
func (c *channel) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	l, err := c.pick(ctx, options)
	if err != nil {
		return nil, err
	}
	stream, err := l.NewStream(ctx, desc, method, options...)
	if err != nil {
		return nil, err
	}
	//mutant: return stream, nil
	return textStream{stream}, nil
}

// pick returns the link, or connects. After a failed attempt, it waits for another only if the options say
// so.
func (c *channel) pick(ctx context.Context, options []grpc.CallOption) (link, error) {
	for {
		l, changed, err := c.look(waitsForReady(options))
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// look is pick without the wait: if it returns neither, a change is imminent.
func (c *channel) look(wait bool) (l link, changed chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = c.target.pool.cfg.Clock()
	switch {
	case c.state == connectivity.Shutdown:
		return nil, nil, status.Error(codes.Canceled, "the connection is closed")
	case c.state == connectivity.TransientFailure && !wait:
		return nil, nil, c.err
	case c.state == connectivity.Idle:
		c.state = connectivity.Connecting
		c.running.Go(c.connect)
	case c.state == connectivity.Ready:
		select {
		case <-c.link.Left(): // connect will notice soon
		default:
			return c.link, nil, nil
		}
	}
	return nil, c.changed, nil
}

func waitsForReady(options []grpc.CallOption) bool {
	for _, option := range options {
		if o, ok := option.(grpc.FailFastCallOption); ok {
			return !o.FailFast
		}
	}
	return false
}

// connect retries until it has a link, or calls have stopped, and stays until the link has ended.
func (c *channel) connect() {
	for pause := reconnectFirst; ; pause = min(pause*8/5, reconnectLongest) {
		l, err := c.open()
		if err == nil {
			c.target.pool.cfg.Meter.connected(c.again)
			c.again = true
			c.setState(connectivity.Ready, l, nil)
			c.stay(l)
			return
		}
		c.setState(connectivity.TransientFailure, nil, connectError{status.Newf(codes.Unavailable, "connect to %s: %v", c.target.address, err), err})
		if sleep(c.life, pause); c.life.Err() != nil || !c.isUsed() {
			return
		}
	}
}

type connectError struct {
	status *status.Status
	cause  error
}

func (e connectError) Error() string              { return e.status.Err().Error() }
func (e connectError) Unwrap() error              { return e.cause }
func (e connectError) GRPCStatus() *status.Status { return e.status }

// stay returns when a link has ended. Close breaks it, even while its last calls are answered.
func (c *channel) stay(l link) {
	closed := make(chan struct{})
	stop := context.AfterFunc(c.life, func() {
		defer close(closed)
		l.Close()
	})
	<-l.Left()
	c.setState(connectivity.Idle, nil, nil)
	//mutant: if stop() { l.Wait(); return }; l.Wait()
	l.Wait()
	if !stop() {
		<-closed
	}
}

// isUsed reports whether a call came recently. If not, connect ends until the next call.
func (c *channel) isUsed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.target.pool.cfg.Clock().Sub(c.used) < idleTimeout || c.state == connectivity.Shutdown {
		return true
	}
	c.become(connectivity.Idle, nil, nil)
	return false
}

// open connects, and identifies the client.
func (c *channel) open() (link, error) {
	p := c.target.pool
	ctx, cancel := context.WithTimeoutCause(c.life, p.cfg.DialTimeout, fmt.Errorf("no connection within %v", p.cfg.DialTimeout))
	defer cancel()
	l, err := c.openLink(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.encryption.introduce(ctx, l); err != nil {
		l.Close()
		l.Wait()
		return nil, err
	}
	return l, nil
}

func (c *channel) openLink(ctx context.Context) (link, error) {
	conn, err := c.target.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.noteHeard()
	//mutant: l, err := (*frames.Link)(nil), frames.ErrOtherProtocol; _ = conn.Close()
	l, err := frames.Open(ctx, conn, c.target.pool.framesConfig())
	switch {
	case errors.Is(err, frames.ErrHTTP):
		return nil, fmt.Errorf("%w; the port for clients is %d by default, and that of HTTP %d", frames.ErrHTTP, api.DefaultClientPort, api.DefaultHTTPPort)
	case errors.Is(err, frames.ErrOtherProtocol):
		return openGRPC(ctx, c.target)
	case err != nil:
		return nil, err // a nil *frames.Link would be no nil link
	}
	return l, nil
}

// A request with text that is not UTF-8 cannot be encoded. gRPC reports that with a code after which another
// attempt may succeed. Here none can, so such a request fails with InvalidArgument, which is an answer.

type textStream struct{ grpc.ClientStream }

func (s textStream) SendMsg(request any) error {
	return explainText(request, s.ClientStream.SendMsg(request))
}

// explainText returns err, or an error that names the field of the request that is not UTF-8.
func explainText(request any, err error) error {
	//mutant: if status.Code(err) == codes.Internal {
	if status.Code(err) != codes.Internal {
		return err
	}
	field := chubbypb.NotUTF8(request)
	if field == "" {
		return err
	}
	return &api.Error{Code: api.InvalidArgument, Message: fmt.Sprintf("the field %q of the request is not valid UTF-8, so it was not sent; give it other text", field)}
}

// grpcLink is a link to a replica without frames: a grpc.ClientConn that connects once.
type grpcLink struct {
	*grpc.ClientConn
	conn *onceConn
}

func openGRPC(ctx context.Context, t *target) (link, error) {
	conn, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := grpcLink{conn: newOnceConn(conn)}
	l.ClientConn, err = grpc.NewClient("passthrough:///"+t.address, append(t.pool.grpcOptions(), grpc.WithContextDialer(l.conn.take))...)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	l.Connect()
	for state := l.GetState(); state != connectivity.Ready; state = l.GetState() {
		if state == connectivity.TransientFailure || !l.WaitForStateChange(ctx, state) {
			l.Close()
			l.Wait()
			return nil, fmt.Errorf("what listens there speaks neither in frames nor gRPC; is it the port for clients (%d by default), or that of Raft (%d) or HTTP (%d)? %w",
				api.DefaultClientPort, api.DefaultRaftPort, api.DefaultHTTPPort, cmp.Or(context.Cause(ctx), errHungUp))
		}
	}
	return l, nil
}

// errHungUp is why a server gave no link, although its time had not passed.
var errHungUp = errors.New("it closed the connection")

// Left implements link.
func (l grpcLink) Left() <-chan struct{} { return l.conn.left }

// Close implements link. It may take some seconds if the connection accepts no data.
func (l grpcLink) Close() {
	_ = l.ClientConn.Close() // fails only if closed already
	_ = l.conn.Close()       // if gRPC never took it
}

// Wait implements link.
func (l grpcLink) Wait() {
	<-l.conn.gone
	_ = l.ClientConn.Close() // as above
}

// onceConn is the connection for gRPC's first connect.
type onceConn struct {
	net.Conn
	taken      atomic.Bool
	left, gone chan struct{}
	leave, end func() // close left, and gone
}

func newOnceConn(conn net.Conn) *onceConn {
	c := &onceConn{Conn: conn, left: make(chan struct{}), gone: make(chan struct{})}
	c.leave, c.end = sync.OnceFunc(func() { close(c.left) }), sync.OnceFunc(func() { close(c.gone) })
	return c
}

// take is gRPC's dialer. A second request says that the server takes no more calls here, or that the
// connection is broken.
func (c *onceConn) take(context.Context, string) (net.Conn, error) {
	if c.taken.CompareAndSwap(false, true) {
		return c, nil
	}
	c.leave()
	return nil, errors.New("the replica takes no more calls over this connection")
}

// Close implements net.Conn.
func (c *onceConn) Close() error {
	err := c.Conn.Close()
	c.leave()
	c.end()
	return err
}
