package seqgrpc_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqgrpc"
)

// inTheContext is a lock with the sequencer of that token.
type inTheContext uint64

func (l inTheContext) Sequencer() sequencer.Sequencer {
	s, err := sequencer.Parse(text(uint64(l)))
	if err != nil {
		panic(err)
	}
	return s
}

// Without a source, calls and streams carry the sequencer of the lock in whose context they are made; a call in none is not sent.
func TestSequencerOfTheContext(t *testing.T) {
	dial := serve(t, &service{stream: func(stream pb.TestService_FullDuplexCallServer) error {
		held, _ := seqgrpc.FromContext(stream.Context())
		return stream.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte(held.String())}})
	}})
	client := pb.NewTestServiceClient(dial(
		grpc.WithUnaryInterceptor(seqgrpc.UnaryClientInterceptor(nil)), grpc.WithStreamInterceptor(seqgrpc.StreamClientInterceptor(nil))))
	for _, token := range []uint64{41, 57} {
		ctx := sequencer.NewContext(limited(t), inTheContext(token))
		reply, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
		if err != nil || reply.GetUsername() != text(token) {
			t.Errorf("a call: the handler saw %q, %v; want %q", reply.GetUsername(), err, text(token))
		}
		stream, err := client.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || string(m.GetPayload().GetBody()) != text(token) {
			t.Errorf("a stream: the handler saw %q, %v; want %q", m.GetPayload().GetBody(), err, text(token))
		}
	}
	_, err := client.UnaryCall(limited(t), &pb.SimpleRequest{})
	wantStatus(t, err, codes.FailedPrecondition, "not sent")
}
