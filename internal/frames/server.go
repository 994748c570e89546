package frames

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
)

// ServerConfig configures a server.
type ServerConfig struct {
	Times Times
	// MaxCalls limits a connection's calls, and MaxRequest the received messages, in bytes.
	MaxCalls, MaxRequest int
	// Serve serves a call, by the method's Call. It turns panics into errors. nil: the method alone serves it.
	Serve func(m *Method, stream grpc.ServerStream) (reply any, err error)
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

	connected sync.WaitGroup // connections; Add only under mu, and not after leaving

	mu      sync.Mutex // guards what follows
	conns   map[*serverConn]struct{}
	leaving bool
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// Method is a method of a service.
type Method struct {
	Name   string // in full
	Impl   any
	Unary  grpc.MethodHandler // nil with several replies
	Stream grpc.StreamHandler
}

// Call calls the method, which receives its request from stream. intercept is called between a request and a
// handler with one reply; nil: nothing is.
func (m *Method) Call(stream grpc.ServerStream, intercept grpc.UnaryServerInterceptor) (reply any, err error) {
	if m.Unary != nil {
		return m.Unary(m.Impl, stream.Context(), stream.RecvMsg, intercept)
	}
	return nil, m.Stream(m.Impl, stream)
}

func (s *Server) call(m *Method, stream grpc.ServerStream) (reply any, err error) {
	if s.cfg.Serve == nil {
		return m.Call(stream, nil)
	}
	return s.cfg.Serve(m, stream)
}

// NewServer returns a server without services.
func NewServer(cfg ServerConfig) *Server {
	return &Server{cfg: cfg, methods: map[string]*Method{}, conns: map[*serverConn]struct{}{}}
}

// RegisterService implements grpc.ServiceRegistrar. Call it before the first connection is served.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, m := range desc.Methods {
		name := "/" + desc.ServiceName + "/" + m.MethodName
		s.methods[name] = &Method{Name: name, Impl: impl, Unary: m.Handler}
	}
	for _, m := range desc.Streams {
		if !m.ClientStreams {
			name := "/" + desc.ServiceName + "/" + m.StreamName
			s.methods[name] = &Method{Name: name, Impl: impl, Stream: m.Handler}
		}
	}
}

// Alias serves a method by another name, too.
func (s *Server) Alias(name, as string) { s.methods[as] = s.methods[name] }

// Go serves a connection, from its client's hello on. It reads only as many bytes as it needs next: the
// connection has its own buffer.
func (s *Server) Go(conn net.Conn) {
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

// errUnread is why the context of an abandoned call ends.
var errUnread = fmt.Errorf("the client does not want an answer any more: %w", context.Canceled)

// workers run handlers on reused goroutines: a stack that has grown already serves a call for less than a new
// one.
type workers struct {
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows
	resting []chan func()
	closed  bool
}

// maxResting is the maximum of idle goroutines.
const maxResting = 256

// run has do run, without waiting.
func (w *workers) run(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.resting); n > 0 {
		next := w.resting[n-1]
		w.resting[n-1] = nil
		w.resting = w.resting[:n-1]
		next <- do // there is room: it rests
		return
	}
	w.running.Go(func() { w.work(do) })
}

// work runs one handler after the other.
func (w *workers) work(do func()) {
	next := make(chan func(), 1)
	for do != nil {
		do()
		if !w.rest(next) {
			return
		}
		do = <-next
	}
}

// rest adds an idle goroutine, and reports whether there was room.
func (w *workers) rest(next chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.resting) >= maxResting {
		return false
	}
	w.resting = append(w.resting, next)
	return true
}

// close waits for the end of all goroutines. Nothing runs afterwards.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	for _, next := range w.resting {
		close(next)
	}
	w.resting = nil
	w.mu.Unlock()
	w.running.Wait()
}
