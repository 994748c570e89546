package wire

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/tap"
)

// Server serves clients on one port: Go clients in frames (see package frames), others over gRPC, which is a
// gateway to frames: a call is the same, however it came.
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
	s := newService(cfg)
	return newServer(s, func(r grpc.ServiceRegistrar) {
		pb.RegisterChubbyServer(r, chubbyService{service: s})
		pb.RegisterCellServer(r, cellService{service: s})
	})
}

func newServer(s *service, register func(grpc.ServiceRegistrar)) *Server {
	f := frames.NewServer(frames.ServerConfig{
		Times:    frames.Times{Ping: pingTime, Timeout: pingTimeout, Idle: maxIdle},
		MaxCalls: maxStreams, MaxRequest: api.MaxCommand, Serve: s.serve, Tap: withCall,
		Prompt: func(method string) bool { return s.rpcs[method].keepsAlive },
	})
	register(f)
	for _, m := range pb.Chubby_ServiceDesc.Methods {
		name := "/" + pb.Chubby_ServiceDesc.ServiceName + "/" + m.MethodName
		if former := pb.FormerName(name); former != "" {
			f.Alias(name, former) // its calls count under the current name
		}
	}
	return &Server{grpc: grpc.NewServer(append(options(), f.Gateway()...)...), frames: f}
}

// options limits what gRPC keeps for a stranger. Windows are fixed, since adaptive ones grow up to 16 MiB for
// each call. A call's window is the smallest possible. The tap rejects nothing: gRPC would keep a rejected
// call's deadline timer.
func options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) { return withCall(ctx), nil }),
		grpc.ForceServerCodecV2(exactCodec{encoding.GetCodecV2("proto")}),
		grpc.StaticStreamWindowSize(1<<16 - 1), grpc.StaticConnWindowSize(1 << 20),
		grpc.MaxRecvMsgSize(api.MaxCommand),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(8 << 10),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.ReadBufferSize(0), grpc.WriteBufferSize(8 << 10),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingTime, Timeout: pingTimeout, MaxConnectionIdle: maxIdle}),
	}
}

// maxStreams limits the calls of a connection. It may carry many processes' sessions, each with a parked
// KeepAlive and a call or a queue position, so 2,000 calls are a thousand such sessions. 100,000 sessions need
// a hundred connections, from several addresses: heldLimits closes those of one address above some 60,000 parked calls.
const maxStreams = 2_000

// Serve serves the connections of a listener until the server is stopped.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// GracefulStop closes the listener. It returns when all calls are answered and all connections closed.
func (s *Server) GracefulStop() {
	var stopping sync.WaitGroup
	stopping.Go(s.frames.GracefulStop)
	s.grpc.GracefulStop()
	stopping.Wait()
}

// Close breaks all connections. GracefulStop then returns, too.
func (s *Server) Close() {
	s.grpc.Stop()
	s.frames.Stop()
}
