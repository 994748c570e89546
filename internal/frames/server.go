package frames

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
)

// ServerConfig is how a server is to be.
type ServerConfig struct {
	Times Times
	// MaxCalls bounds the calls of a connection, and MaxRequest the messages that are
	// received, in bytes.
	MaxCalls, MaxRequest int
	// Unary and Stream are called for each call, as gRPC calls its interceptors. They turn
	// panics into errors.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// Tap is called for each call that is served, after its request was read and before more
	// is read from its connection, and returns the context of the call; nil leaves it as it is. The
	// peer of the context has the connection's RemoteAddr.
	Tap func(ctx context.Context) context.Context
}

// Server serves the connections that are handed to it. It has the same services and
// handlers as a grpc.Server; see Credentials for how both have one port.
type Server struct {
	cfg     ServerConfig
	methods map[string]*method // by full name; not changed while it serves
	pool    buffers
	workers workers

	connected sync.WaitGroup // connections; Add only under mu, and not after leaving

	mu      sync.Mutex // guards what follows
	conns   map[*serverConn]struct{}
	leaving bool
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// method is a method of a service.
type method struct {
	name   string // in full
	impl   any
	unary  grpc.MethodHandler // nil if it has several replies
	stream grpc.StreamHandler
}

// NewServer returns a server without services.
func NewServer(cfg ServerConfig) *Server {
	return &Server{cfg: cfg, methods: map[string]*method{}, conns: map[*serverConn]struct{}{}}
}

// RegisterService implements grpc.ServiceRegistrar. It is called before the first
// connection is served.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, m := range desc.Methods {
		name := "/" + desc.ServiceName + "/" + m.MethodName
		s.methods[name] = &method{name: name, impl: impl, unary: m.Handler}
	}
	for _, m := range desc.Streams {
		if !m.ClientStreams {
			name := "/" + desc.ServiceName + "/" + m.StreamName
			s.methods[name] = &method{name: name, impl: impl, stream: m.Handler}
		}
	}
}

// Go has a connection served, beginning with the hello of its client. The server reads as
// many bytes at a time as it needs next: the connection has a buffer of its own.
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

// errStopped is why the calls of a server that stops end.
var errStopped = errors.New("the server has stopped")

// GracefulStop takes no more calls and connections, and returns when all calls have been
// answered and every connection is closed.
func (s *Server) GracefulStop() {
	for _, c := range s.leave() {
		c.leave()
	}
	s.connected.Wait()
	s.workers.close()
}

// Stop breaks all connections and returns when all handlers have returned. It may be
// called during GracefulStop, which then returns, too.
func (s *Server) Stop() {
	for _, c := range s.leave() {
		c.end(errStopped)
	}
	s.connected.Wait()
	s.workers.close()
}

// leave has no further connection served, and returns those that are.
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

// errUnread is the cause of the end of a context whose call nobody waits for any more.
var errUnread = fmt.Errorf("the client does not want an answer any more: %w", context.Canceled)
