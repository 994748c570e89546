package frames

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// ServerConfig configures a server.
type ServerConfig struct {
	Times Times
	// MaxCalls limits a connection's calls, and MaxRequest the received messages, in bytes.
	MaxCalls, MaxRequest int
	// Serve serves a call, by the method's Handle. It turns panics into errors. nil: the method alone serves it.
	Serve func(m *Method, stream grpc.ServerStream) (reply any, err error)
	// Prompt reports whether a method's handler never waits, except for a mutex; it may park its call. The
	// goroutine that reads a connection serves such calls, and reads the next when one has been served. nil: every
	// handler may wait.
	Prompt func(method string) bool
	// Tap is called for each call, between its request and the next read from its connection. It returns the
	// call's context; nil keeps it. The context's peer has the connection's RemoteAddr.
	Tap func(ctx context.Context) context.Context
}

// Server serves the connections handed to it, and the calls of a grpc.Server on the same port; see Gateway.
type Server struct {
	cfg     ServerConfig
	methods map[string]*Method // by full name; constant while it serves
	pool    buffers
	workers workers
	resumed lane
	turns   chan struct{} // one element for each prompt call that is being served

	connected sync.WaitGroup // connections; Add only under mu, and not after leaving

	mu      sync.Mutex // guards what follows
	conns   map[*serverConn]struct{}
	leaving bool
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// turnsPerProcessor is how many prompt calls are served at once. All else in the process waits behind them for a
// processor: a replica whose Raft waits for longer than an election takes is no longer the master.
const turnsPerProcessor = 2

// NewServer returns a server without services.
func NewServer(cfg ServerConfig) *Server {
	turns := make(chan struct{}, turnsPerProcessor*runtime.GOMAXPROCS(0))
	s := &Server{cfg: cfg, methods: map[string]*Method{}, conns: map[*serverConn]struct{}{}, turns: turns}
	s.resumed.workers = &s.workers
	return s
}

// RegisterService implements grpc.ServiceRegistrar. Call it before the first connection is served.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, m := range desc.Methods {
		name := "/" + desc.ServiceName + "/" + m.MethodName
		s.methods[name] = &Method{Name: name, Impl: impl, Unary: m.Handler, prompt: s.isPrompt(name)}
	}
	for _, m := range desc.Streams {
		if !m.ClientStreams {
			name := "/" + desc.ServiceName + "/" + m.StreamName
			s.methods[name] = &Method{Name: name, Impl: impl, Stream: m.Handler, prompt: s.isPrompt(name)}
		}
	}
}

func (s *Server) isPrompt(method string) bool { return s.cfg.Prompt != nil && s.cfg.Prompt(method) }

// Alias serves a method by another name, too.
func (s *Server) Alias(name, as string) { s.methods[as] = s.methods[name] }

// Take serves a connection, from its client's hello on. It reads only as many bytes as it needs next: the
// connection has its own buffer.
func (s *Server) Take(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving {
		_ = conn.Close() // it was never served
		return
	}
	c := newServerConn(s, conn)
	s.conns[c] = struct{}{}
	s.connected.Go(func() {
		c.serve()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	})
}

var errStopped = errors.New("the server has stopped")

// GracefulStop takes no more calls and connections. It returns when all calls are answered and all connections
// closed.
func (s *Server) GracefulStop() {
	for _, c := range s.leave() {
		c.leave()
	}
	s.connected.Wait()
	s.workers.close()
}

// Stop breaks all connections, and returns after all handlers. During GracefulStop it makes that return, too.
func (s *Server) Stop() {
	for _, c := range s.leave() {
		c.end(errStopped)
	}
	s.connected.Wait()
	s.workers.close()
}

func (s *Server) leave() []*serverConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	var list []*serverConn
	for c := range s.conns {
		list = append(list, c)
	}
	return list
}

type serverConn struct {
	server *Server
	conn   net.Conn
	out    outlet
	beat   pulse
	ctx    context.Context //nolint:containedctx // that of each call is made of it
	cancel context.CancelCauseFunc

	handlers sync.WaitGroup
	running  chan struct{} // one element for each handler

	traced uint64 // the call of trace; only for the reader, as trace is
	trace  string // "" if none has arrived since the last request

	mu      sync.Mutex // guards what follows; out.mu may be taken under it
	calls   map[uint64]*serverCall
	last    uint64 // the newest call
	leaving bool
	shut    bool // the connection is closed
}

func newServerConn(s *Server, conn net.Conn) *serverConn {
	c := &serverConn{server: s, conn: conn, running: make(chan struct{}, s.cfg.MaxCalls), calls: map[uint64]*serverCall{}}
	base := peer.NewContext(context.Background(), &peer.Peer{Addr: conn.RemoteAddr(), LocalAddr: conn.LocalAddr()})
	c.ctx, c.cancel = context.WithCancelCause(base)
	clock := startStopwatch()
	c.out = outlet{conn: conn, clock: clock, pool: &s.pool, stopped: c.end}
	c.beat = pulse{
		clock: clock, times: s.cfg.Times, since: &c.out.since, dead: c.end, idle: c.leaveIdle,
		ping: func() { c.out.control(Header{Kind: KindPing, Call: 1}) },
	}
	return c
}

func (c *serverConn) serve() {
	c.beat.start()
	c.end(c.read())
	c.handlers.Wait()
	c.out.running.Wait()
}

func (c *serverConn) end(err error) {
	if err == nil {
		err = errors.New("the server closed the connection")
	}
	c.mu.Lock()
	first := !c.shut
	c.shut = true
	open := slices.Collect(maps.Values(c.calls)) // no call enters any more
	clear(c.calls)
	c.out.close()
	c.mu.Unlock()
	if first {
		_ = c.conn.Close() // an error does not matter any more
		c.beat.stop()
		c.cancel(fmt.Errorf("the connection to the client has ended: %w", err))
	}
	for _, call := range open {
		call.abandon()
	}
}

// leave takes no more calls, and closes the connection after the last answer.
func (c *serverConn) leave() {
	c.mu.Lock()
	if c.leaving || c.shut {
		c.mu.Unlock()
		return
	}
	c.leaving = true
	frame := c.server.pool.get(HeaderSize)
	frame.b = Header{Kind: KindLeave, Call: c.last}.Append(frame.b)
	_, write, _ := c.out.enqueue(frame, false)
	done := len(c.calls) == 0
	c.mu.Unlock()
	if write {
		c.out.write()
	}
	if done {
		c.out.end()
	}
}

func (c *serverConn) leaveIdle() {
	c.mu.Lock()
	idle := len(c.calls) == 0
	c.mu.Unlock()
	if idle {
		c.leave() // a call that comes in between is answered
	}
}

// read reads frames until the connection ends.
func (c *serverConn) read() error {
	ours := hello{calls: uint32(c.server.cfg.MaxCalls), length: uint32(c.server.cfg.MaxRequest)}
	if _, err := readHello(c.conn); err != nil {
		return err
	}
	b := c.server.pool.get(HelloSize)
	b.b = ours.append(b.b)
	c.out.send(b)
	var head [HeaderSize]byte
	for {
		h, err := readHeader(c.conn, &head)
		if err != nil {
			return err
		}
		c.beat.hear()
		switch h.Kind {
		case KindRequest:
			err = c.readRequest(h)
		case KindTrace:
			err = c.noteTrace(h)
		default:
			err = c.take(h)
		}
		if err != nil {
			return err
		}
	}
}

// noteTrace reads the next request's trace. It keeps one a connection, and skips invalid ones.
func (c *serverConn) noteTrace(h Header) error {
	if h.Length == 0 || h.Length > maxTrace {
		return skipPayload(c.conn, h, c.server.cfg.MaxRequest)
	}
	var text [maxTrace]byte
	if _, err := io.ReadFull(c.conn, text[:h.Length]); err != nil {
		return err
	}
	c.traced, c.trace = h.Call, string(text[:h.Length])
	return nil
}

// take reads a frame that begins no call. Their payloads are useless, and nothing counts their memory.
func (c *serverConn) take(h Header) error {
	if err := skipPayload(c.conn, h, c.server.cfg.MaxRequest); err != nil {
		return err
	}
	switch h.Kind {
	case KindPing:
		if c.pongs() {
			c.out.control(Header{Kind: KindPong, Call: h.Call})
		}
	case KindCancel:
		c.mu.Lock()
		call := c.calls[h.Call]
		delete(c.calls, h.Call)
		done := c.leaving && len(c.calls) == 0
		c.mu.Unlock()
		if call != nil {
			call.cancel(errUnread)
			call.abandon()
		}
		if done {
			c.out.end()
		}
	}
	return nil
}

// pongs reports whether to answer a ping: while a client takes nothing, only earlier ones are answered.
func (c *serverConn) pongs() bool { return c.out.since.Load() == 0 || c.out.backlog() < maxChunk }

func (c *serverConn) readRequest(h Header) error {
	c.mu.Lock()
	begun, leaving := h.Call <= c.last, c.leaving
	open := len(c.calls) + c.out.unanswered() // the client cannot know of these ends yet
	c.mu.Unlock()
	if begun {
		return fmt.Errorf("%w: call %d was begun before", errViolation, h.Call)
	}
	if most := c.server.cfg.MaxCalls; open >= most {
		return fmt.Errorf("%w: more than %d calls", errViolation, most)
	}
	payload, err := readPayload(c.conn, h, c.server.cfg.MaxRequest+maxPrefix, &c.server.pool)
	if err != nil && !errors.Is(err, errTooLong) {
		return err
	}
	if leaving {
		if payload != nil {
			c.server.pool.put(payload)
		}
		return nil // the client knows that it was not served
	}
	call := &serverCall{conn: c, number: h.Call}
	if c.trace != "" {
		if c.traced == h.Call {
			call.trace = c.trace
		}
		c.trace = ""
	}
	if err == nil {
		err = call.parse(payload)
	} else {
		err = status.Errorf(codes.ResourceExhausted, "a request of %d bytes; at most %d are allowed", h.Length, c.server.cfg.MaxRequest)
	}
	if !c.enter(call) {
		return nil
	}
	if err != nil { // there is no context to end
		if call.finish(nil, err) {
			c.out.write()
		}
		return nil
	}
	call.begin()
	c.running <- struct{}{} // the handler of an abandoned call may still run
	c.handlers.Add(1)
	if call.method.prompt {
		call.serveInTurn()
	} else {
		c.server.workers.run(call.serve)
	}
	return nil
}

func (c *serverConn) enter(call *serverCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving || c.shut {
		return false
	}
	c.last = call.number
	c.calls[call.number] = call
	c.beat.begin()
	return true
}
