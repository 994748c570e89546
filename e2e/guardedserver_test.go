package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqgrpc"
	"github.com/chubbylock/chubby/sequencer/seqhttp"
)

// The flag makes this program the guarded server: TestMain parses the flags, which does not return
// then.
var _ = func() bool {
	flag.Func("guarded-server", "be the guarded server of TestGuard, with its files in this directory", func(dir string) error {
		if err := serveGuarded(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
		return nil
	})
	return true
}()

// guardedServer is a server that the lock protects. It writes down each request that it accepts,
// twice: when it begins and before it ends. Both are in the request's section, so the order of the
// lines is that of the work.
type guardedServer struct {
	pb.UnimplementedTestServiceServer
	journal *os.File
}

func serveGuarded(dir string) error {
	store, err := sequencer.OpenFileStore(filepath.Join(dir, "guard"))
	if err != nil {
		return err
	}
	guard, err := sequencer.NewGuard(context.Background(), sequencer.GuardConfig{Locks: []api.Path{api.MustParsePath(guardedLock)}, Store: store})
	if err != nil {
		return err
	}
	s := &guardedServer{}
	if s.journal, err = os.OpenFile(filepath.Join(dir, "journal"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	forGRPC, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	forHTTP, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(seqgrpc.UnaryInterceptor(guard)), grpc.StreamInterceptor(seqgrpc.StreamInterceptor(guard)))
	pb.RegisterTestServiceServer(server, s)
	go server.Serve(forGRPC)
	go http.Serve(forHTTP, seqhttp.Middleware(guard)(s))
	fmt.Println("ready", forGRPC.Addr(), forHTTP.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// handle does what a request asks for. Some take long, and end when their context does.
func (s *guardedServer) handle(ctx context.Context) error {
	held, _ := sequencer.FromContext(ctx)
	if _, err := fmt.Fprintf(s.journal, "begin %d\n", held.Token()); err != nil {
		return err
	}
	if rand.N(8) == 0 {
		select {
		case <-time.After(time.Duration(rand.N(20)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	_, err := fmt.Fprintf(s.journal, "end %d\n", held.Token())
	return err
}

func (s *guardedServer) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{}, s.handle(ctx)
}

func (s *guardedServer) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := s.handle(stream.Context()); err != nil {
		return err
	}
	return stream.Send(&pb.StreamingOutputCallResponse{})
}

func (s *guardedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.handle(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
