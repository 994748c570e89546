package seqgrpc_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqgrpc"
)

const patience = time.Minute // bounds what should happen at once

func text(token uint64) string {
	return sequencer.Sequencer{
		Cell: "00112233445566778899aabbccddeeff", Path: api.MustParsePath("/ls/foo/svc/primary"),
		Mode: api.Exclusive, Generation: api.Generation(token),
	}.String()
}

// service is the server that the lock protects. Each hook is a call's handler.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(context.Context) error
	stream func(pb.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if s.unary != nil {
		if err := s.unary(ctx); err != nil {
			return nil, err
		}
	}
	held, _ := seqgrpc.FromContext(ctx)
	return &pb.SimpleResponse{Username: held.String()}, nil
}

func (s *service) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	return s.stream(stream)
}

// serve starts a server behind a guard, and returns a way to dial it.
func serve(t *testing.T, srv *service) (dial func(opts ...grpc.DialOption) *grpc.ClientConn) {
	t.Helper()
	dial, _ = guarded(t, srv)
	return dial
}

// guarded is serve, and returns the guard, too.
func guarded(t *testing.T, srv *service) (dial func(opts ...grpc.DialOption) *grpc.ClientConn, guard *sequencer.Guard) {
	t.Helper()
	store, err := sequencer.OpenFileStore(filepath.Join(t.TempDir(), "guard"))
	if err != nil {
		t.Fatal(err)
	}
	guard, err = sequencer.NewGuard(t.Context(), sequencer.GuardConfig{
		Locks: []api.Path{api.MustParsePath("/ls/foo/svc/primary")}, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(seqgrpc.UnaryInterceptor(guard, "/grpc.health.v1.Health/", pb.TestService_EmptyCall_FullMethodName)),
		grpc.StreamInterceptor(seqgrpc.StreamInterceptor(guard, healthpb.Health_Watch_FullMethodName)))
	pb.RegisterTestServiceServer(server, srv)
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = store.Close()
	})
	return func(opts ...grpc.DialOption) *grpc.ClientConn {
		conn, err := grpc.NewClient("passthrough:///bufconn", append(opts,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}, guard
}

// holder is a client that sends the sequencer of that token with every call.
func holder(token uint64) []grpc.DialOption {
	source := func() string { return text(token) }
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(seqgrpc.UnaryClientInterceptor(source)),
		grpc.WithStreamInterceptor(seqgrpc.StreamClientInterceptor(source)),
	}
}

func wantStatus(t *testing.T, err error, code codes.Code, parts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("%v; want %v", err, code)
	}
	for _, part := range parts {
		if !strings.Contains(status.Convert(err).Message(), part) {
			t.Fatalf("%v; want its message to hold %q", err, part)
		}
	}
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestUnaryCallsAreFenced(t *testing.T) {
	var calls atomic.Int32
	dial, guard := guarded(t, &service{unary: func(context.Context) error { calls.Add(1); return nil }})
	ctx := limited(t)
	call := func(conn *grpc.ClientConn, ctx context.Context) (string, error) {
		reply, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{})
		return reply.GetUsername(), err
	}
	older, newer, without := dial(holder(41)...), dial(holder(57)...), dial()
	for _, step := range []struct {
		conn *grpc.ClientConn
		want string
	}{{older, text(41)}, {newer, text(57)}, {newer, text(57)}} {
		if got, err := call(step.conn, ctx); err != nil || got != step.want {
			t.Fatalf("the handler saw %q, %v; want %q", got, err, step.want)
		}
	}
	_, err := call(older, ctx)
	wantStatus(t, err, codes.FailedPrecondition, "token 41 is stale: 57 was seen for /ls/foo/svc/primary")
	if token, newest, ok := seqgrpc.Tokens(err); token != 41 || newest != 57 || !ok {
		t.Errorf("its details have %d, %d, %v; want both tokens", token, newest, ok)
	}
	_, err = call(without, ctx)
	wantStatus(t, err, codes.FailedPrecondition, "no sequencer", seqgrpc.MetadataKey)
	if _, _, ok := seqgrpc.Tokens(err); ok {
		t.Error("there is no token")
	}
	_, err = call(without, metadata.AppendToOutgoingContext(ctx, seqgrpc.MetadataKey, text(57), seqgrpc.MetadataKey, text(58)))
	wantStatus(t, err, codes.FailedPrecondition, "2 sequencers")
	_, err = call(without, metadata.AppendToOutgoingContext(ctx, seqgrpc.MetadataKey, text(58)[:60]))
	wantStatus(t, err, codes.FailedPrecondition, "damaged")
	// What a caller put there by hand gives way to what the interceptor knows.
	if _, err = call(newer, metadata.AppendToOutgoingContext(ctx, seqgrpc.MetadataKey, text(41))); err != nil {
		t.Error(err)
	}
	_, err = call(dial(grpc.WithUnaryInterceptor(seqgrpc.UnaryClientInterceptor(func() string { return "" }))), ctx)
	wantStatus(t, err, codes.FailedPrecondition, "not sent")
	if got := calls.Load(); got != 4 {
		t.Errorf("the handler was called %d times; four calls were let in", got)
	}
	if got, want := guard.Stats(), (sequencer.Stats{Accepted: 4, RefusedStale: 1, RefusedMissing: 2, RefusedOther: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestExemptMethodsNeedNoSequencer(t *testing.T) {
	dial := serve(t, &service{})
	ctx, conn := limited(t), dial()
	if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Error(err)
	}
	_, err = pb.NewTestServiceClient(conn).EmptyCall(ctx, &pb.Empty{})
	wantStatus(t, err, codes.Unimplemented) // let in, to a handler that is none
	_, err = pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{})
	wantStatus(t, err, codes.FailedPrecondition)
}

// A handler's own error is passed on as it is, and a newer call waits for an
// older one that is still running, which is told to go.
func TestNewerUnaryCallWaitsForOlder(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var inside atomic.Int32
	dial := serve(t, &service{unary: func(ctx context.Context) error {
		if inside.Add(1) > 1 {
			t.Error("handlers of two tokens overlap")
		}
		defer inside.Add(-1)
		if held, _ := seqgrpc.FromContext(ctx); held.Token() == 57 {
			return nil
		}
		close(entered)
		<-ctx.Done()
		<-leave // a handler slow to go
		return status.Error(codes.Aborted, context.Cause(ctx).Error())
	}})
	ctx := limited(t)
	call := func(token uint64) chan error {
		result := make(chan error, 1)
		client := pb.NewTestServiceClient(dial(holder(token)...))
		go func() {
			_, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
			result <- err
		}()
		return result
	}
	older := call(41)
	<-entered
	newer := call(57)
	// The older one is cancelled by the newer, and so is known to wait from here.
	close(leave)
	wantStatus(t, <-older, codes.Aborted, "57 was seen")
	if err := <-newer; err != nil {
		t.Error(err)
	}
}

// A stale holder that is stopped neither sends nor reads. Its stream must not
// lock the next holder out, whichever way its handler waits.
func TestStreamOfStoppedHolderIsCutOff(t *testing.T) {
	for name, wait := range map[string]func(pb.TestService_FullDuplexCallServer) error{
		"Recv": func(stream pb.TestService_FullDuplexCallServer) error {
			for {
				if _, err := stream.Recv(); err != nil {
					return err
				}
			}
		},
		"Send": func(stream pb.TestService_FullDuplexCallServer) error {
			full := &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, 1<<18)}}
			for {
				if err := stream.Send(full); err != nil {
					return err
				}
			}
		},
		"Context": func(stream pb.TestService_FullDuplexCallServer) error {
			<-stream.Context().Done()
			var err error
			for range 20 { // it goes no further either, not by chance
				if err = stream.Send(&pb.StreamingOutputCallResponse{}); err == nil {
					return errors.New("a stream that was cut off still sends")
				}
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			entered, returned := make(chan struct{}), make(chan error, 1)
			dial := serve(t, &service{stream: func(stream pb.TestService_FullDuplexCallServer) error {
				if held, ok := seqgrpc.FromContext(stream.Context()); !ok || held.Token() != 41 {
					t.Errorf("FromContext = %+v, %v", held, ok)
				}
				close(entered)
				err := wait(stream)
				returned <- err
				return err
			}})
			ctx := limited(t)
			stream, err := pb.NewTestServiceClient(dial(holder(41)...)).FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			<-entered
			if _, err := pb.NewTestServiceClient(dial(holder(57)...)).UnaryCall(ctx, &pb.SimpleRequest{}); err != nil {
				t.Fatal(err)
			}
			err = <-returned
			wantStatus(t, err, codes.FailedPrecondition, "cut off", "57 was seen")
			if token, newest, ok := seqgrpc.Tokens(err); token != 41 || newest != 57 || !ok {
				t.Errorf("its details have %d, %d, %v; want both tokens", token, newest, ok)
			}
			err = nil
			messages := -1
			for ; err == nil; messages++ {
				_, err = stream.Recv()
			}
			wantStatus(t, err, codes.FailedPrecondition, "57 was seen")
			if name == "Context" && messages != 0 {
				t.Errorf("%d messages were sent after the stream was cut off", messages)
			}
		})
	}
}

func TestStreamsAreFenced(t *testing.T) {
	dial := serve(t, &service{stream: func(stream pb.TestService_FullDuplexCallServer) error {
		_, err := stream.Recv()
		if err != nil {
			return err
		}
		return stream.Send(&pb.StreamingOutputCallResponse{})
	}})
	ctx := limited(t)
	open := func(opts ...grpc.DialOption) error {
		stream, err := pb.NewTestServiceClient(dial(opts...)).FullDuplexCall(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.StreamingOutputCallRequest{}); err != nil {
			t.Log(err) // Recv tells why
		}
		_, err = stream.Recv()
		return err
	}
	if err := open(holder(57)...); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, open(holder(41)...), codes.FailedPrecondition, "41", "57")
	wantStatus(t, open(), codes.FailedPrecondition, "no sequencer")
	wantStatus(t, open(grpc.WithStreamInterceptor(seqgrpc.StreamClientInterceptor(func() string { return "" }))),
		codes.FailedPrecondition, "not sent")
}
