package seqgrpc_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqgrpc"
)

type orders struct {
	pb.UnimplementedTestServiceServer
}

func (orders) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	held, _ := seqgrpc.FromContext(ctx)
	return &pb.SimpleResponse{Username: fmt.Sprint("done for token ", held.Token())}, nil
}

// The server lets only the primary in; the primary's connection sends the
// sequencer of its lock.
func Example() {
	directory, _ := os.MkdirTemp("", "guard")
	defer os.RemoveAll(directory)
	store, err := sequencer.OpenFileStore(filepath.Join(directory, "primary"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	guard, err := sequencer.NewGuard(context.Background(), sequencer.GuardConfig{
		Locks: []api.Path{api.MustParsePath("/ls/foo/svc/primary")},
		Store: store,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(seqgrpc.UnaryInterceptor(guard, "/grpc.health.v1.Health/")),
		grpc.StreamInterceptor(seqgrpc.StreamInterceptor(guard, "/grpc.health.v1.Health/")),
	)
	pb.RegisterTestServiceServer(server, orders{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { server.Stop(); <-served }()

	// Two primaries, of which the first does not know yet that it was replaced.
	// The text comes from the lock: func() string { return lock.Sequencer().String() }
	was := "chubby1:x:41:00112233445566778899aabbccddeeff:61aa8073:/ls/foo/svc/primary"
	is := "chubby1:x:57:00112233445566778899aabbccddeeff:8534b459:/ls/foo/svc/primary"
	for _, text := range []string{was, is, was} {
		conn, err := grpc.NewClient(listener.Addr().String(),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithUnaryInterceptor(seqgrpc.UnaryClientInterceptor(func() string { return text })))
		if err != nil {
			fmt.Println(err)
			return
		}
		reply, err := pb.NewTestServiceClient(conn).UnaryCall(context.Background(), &pb.SimpleRequest{})
		fmt.Println(status.Code(err), reply.GetUsername())
		conn.Close()
	}
	// Output:
	// OK done for token 41
	// OK done for token 57
	// FailedPrecondition
}
