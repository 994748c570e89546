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

// Config is what a server for clients is told.
type Config struct {
	Cell    string // its name
	ID      string // of the replica
	Replica Replica
	Logger  *slog.Logger
	Audit   *audit.Log // nil: none is kept

	// Stopwatch measures how long calls take; it has to be cheap. Needed with Answered.
	Stopwatch func() time.Duration
	// Answered is told that a call has ended, and of which trace it was, "" if of none; nil: nobody counts.
	Answered func(method string, code api.Code, took time.Duration, trace string)
	Tracer   Tracer // nil: no call is traced

	InsecurePrincipals bool // take a client's word for who it is
}

// Server serves clients on one port: those of the Go client, which speak in frames (see
// package frames), and those that speak gRPC. Both have the same handlers, interceptors and
// limits.
type Server struct {
	grpc   *grpc.Server
	frames *frames.Server
}

// A connection whose other end is silent for pingTime is asked for a sign of life, and closed
// if there is none within pingTimeout.
const (
	pingTime    = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// NewServer returns a server with limits on everything a stranger could
// make grow. It is to serve on a Listener.
func NewServer(cfg Config) *Server {
	s := &service{cfg: cfg}
	return newServer(s, func(r grpc.ServiceRegistrar) {
		pb.RegisterChubbyServer(r, s)
		pb.RegisterCellServer(r, s)
	})
}

// newServer returns a server of some services, behind the door of s.
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

// GracefulStop closes the listener, and returns when all calls have been answered, and all
// connections closed.
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
