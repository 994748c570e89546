package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// channel carries calls to one address, over one connection (a link) at a time. Like a grpc.ClientConn, it
// connects for a call, which waits, and again after a link has ended. After a failure it retries at growing
// intervals while there are calls, which fail at once.
//
// It speaks frames with a replica that knows them, otherwise gRPC. Each new connection asks, so an upgraded
// replica gets frames from the next one on.
type channel struct {
	how   linking
	heard func() // called after each answered call

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

var _ grpc.ClientConnInterface = (*channel)(nil)

// link is one connection. It does not reconnect.
type link interface {
	grpc.ClientConnInterface
	Left() <-chan struct{} // closed when it rejects further calls
	Close()                // breaks the connection
	Wait()                 // returns when it has ended
}

type linking struct {
	address string
	dial    func(ctx context.Context, address string) (net.Conn, error)
	linked  func(again bool) // called for each link that takes calls; again: an earlier link existed; may be nil
	// introduce identifies the client over a new link; nil if not required.
	introduce func(ctx context.Context, l link) error
	timeout   time.Duration // of one attempt
	clock     session.Clock
	frames    frames.LinkConfig
	grpc      []grpc.DialOption
}

func newChannel(ctx context.Context, how linking, heard func()) *channel {
	c := &channel{how: how, heard: heard, state: connectivity.Idle, changed: make(chan struct{})}
	c.life, c.stop = context.WithCancel(ctx)
	return c
}

// Close breaks the connection, and waits for its end. Calls fail.
func (c *channel) Close() {
	c.set(connectivity.Shutdown, nil, nil)
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

func (c *channel) set(state connectivity.State, l link, err error) {
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
			c.heard()
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
	c.used = c.how.clock()
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
		l, err := c.how.connect(c.life)
		if err == nil {
			again := c.again
			c.again = true
			if c.how.linked != nil {
				c.how.linked(again)
			}
			c.set(connectivity.Ready, l, nil)
			c.stay(l)
			return
		}
		c.set(connectivity.TransientFailure, nil, connectError{status.Newf(codes.Unavailable, "connect to %s: %v", c.how.address, err), err})
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-c.life.Done():
			timer.Stop()
			return
		}
		if !c.isUsed() {
			return
		}
	}
}

type connectError struct {
	*status.Status
	cause error
}

func (e connectError) Error() string              { return e.Err().Error() }
func (e connectError) Unwrap() error              { return e.cause }
func (e connectError) GRPCStatus() *status.Status { return e.Status }

// stay returns when a link has ended. Close breaks it, even while its last calls are answered.
func (c *channel) stay(l link) {
	closed := make(chan struct{})
	stop := context.AfterFunc(c.life, func() {
		defer close(closed)
		l.Close()
	})
	<-l.Left()
	c.set(connectivity.Idle, nil, nil)
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
	if c.how.clock().Sub(c.used) < idleTimeout || c.state == connectivity.Shutdown {
		return true
	}
	c.become(connectivity.Idle, nil, nil)
	return false
}

func (h linking) connect(ctx context.Context) (link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.timeout, fmt.Errorf("no connection within %v", h.timeout))
	defer cancel()
	l, err := h.open(ctx)
	if err != nil || h.introduce == nil {
		return l, err
	}
	if err := h.introduce(ctx, l); err != nil {
		l.Close()
		l.Wait()
		return nil, err
	}
	return l, nil
}

func (h linking) open(ctx context.Context) (link, error) {
	conn, err := h.dial(ctx, h.address)
	if err != nil {
		return nil, err
	}
	//mutant: l, err := (*frames.Link)(nil), frames.ErrOtherProtocol; _ = conn.Close()
	l, err := frames.Open(ctx, conn, h.frames)
	if errors.Is(err, frames.ErrHTTP) {
		return nil, fmt.Errorf("%w; the port for clients is %d by default, and that of HTTP %d", frames.ErrHTTP, api.DefaultClientPort, api.DefaultHTTPPort)
	}
	if errors.Is(err, frames.ErrOtherProtocol) {
		return h.connectGRPC(ctx)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}
