package wire

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc"
)

// Config configures a server for clients.
type Config struct {
	Cell    string // its name
	ID      string // of the replica
	Replica Replica
	Logger  *slog.Logger
	Audit   *audit.Log // nil: there is no audit log

	// Stopwatch measures how long calls take. It must be cheap. Answered requires it.
	Stopwatch func() time.Duration
	// Answered is called when a call has ended; trace is "" if it was not traced. nil: no call is counted.
	Answered func(method string, code api.Code, took time.Duration, trace string)
	Tracer   Tracer // nil: no call is traced

	InsecurePrincipals bool // accept a client's claim of its principal
}

// Server serves clients on one port: Go clients in frames (see package frames), others over gRPC. Both have the
// same handlers, interceptors and limits.
type Server struct {
	grpc   *grpc.Server
	frames *frames.Server
}

// The server pings a connection after pingTime of silence, and closes it if nothing arrives within pingTimeout.
const (
	pingTime    = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// NewServer returns a server that limits everything a stranger could make grow. It must serve on a Listener.
func NewServer(cfg Config) *Server {
	s := &service{cfg: cfg}
	return newServer(s, func(r grpc.ServiceRegistrar) {
		pb.RegisterChubbyServer(r, s)
		pb.RegisterCellServer(r, s)
	})
}

func newServer(s *service, register func(grpc.ServiceRegistrar)) *Server {
	f := frames.NewServer(frames.ServerConfig{
		Times:    frames.Times{Ping: pingTime, Timeout: pingTimeout, Idle: maxIdle},
		MaxCalls: maxStreams, MaxRequest: api.MaxCommand, Stream: s.stream, Tap: withCall,
	})
	g := grpc.NewServer(append(s.options(), grpc.Creds(f.Credentials()))...)
	register(door{f, s})
	register(door{g, s})
	return &Server{grpc: g, frames: f}
}

// Serve serves the connections of a listener until the server is stopped.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// GracefulStop closes the listener. It returns when all calls are answered and all connections closed.
func (s *Server) GracefulStop() {
	var stopping sync.WaitGroup
	stopping.Go(s.frames.GracefulStop)
	s.grpc.GracefulStop()
	stopping.Wait()
}

// Stop breaks all connections. GracefulStop then returns, too.
func (s *Server) Stop() {
	s.grpc.Stop()
	s.frames.Stop()
}
