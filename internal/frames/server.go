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
	// Unary and Stream are called for each call, like gRPC's interceptors. They turn panics into errors.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// Tap is called for each call, between its request and the next read from its connection. It returns the
	// call's context; nil keeps it. The context's peer has the connection's RemoteAddr.
	Tap func(ctx context.Context) context.Context
}

// Server serves the connections handed to it. It has the services and handlers of a grpc.Server; Credentials
// lets both share a port.
type Server struct {
	cfg     ServerConfig
	methods map[string]*method // by full name; constant while it serves
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
	unary  grpc.MethodHandler // nil with several replies
	stream grpc.StreamHandler
}

// NewServer returns a server without services.
func NewServer(cfg ServerConfig) *Server {
	return &Server{cfg: cfg, methods: map[string]*method{}, conns: map[*serverConn]struct{}{}}
}

// RegisterService implements grpc.ServiceRegistrar. Call it before the first connection is served.
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
