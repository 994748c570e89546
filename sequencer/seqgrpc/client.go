package seqgrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/chubbylock/chubby/sequencer/internal/carried"
)

// UnaryClientInterceptor sends the result of source with every call, in place
// of any sequencer that the call has already. source must be safe for
// concurrent use, and is called once per call. It returns the text of the
// sequencer of the lock held now, or "" if none is held: then the call fails
// here with FailedPrecondition and is not sent.
//
// A nil source stands for the context of the call: what is sent is the sequencer
// that sequencer.FromContext finds in it, which is that of the lock under whose
// context (client.Lock.Context, client.Lock.With) the call is made.
func UnaryClientInterceptor(source func() string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, err := sent(ctx, source)
		if err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	}
}

// StreamClientInterceptor does what UnaryClientInterceptor does, for every
// stream that is opened. A stream keeps the sequencer with which it began.
func StreamClientInterceptor(source func() string) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, err := sent(ctx, source)
		if err != nil {
			return nil, err
		}
		return open(ctx, desc, conn, method, opts...)
	}
}

func sent(ctx context.Context, source func() string) (context.Context, error) {
	text := carried.Text(ctx, source)
	if text == "" {
		return nil, status.Error(codes.FailedPrecondition,
			"the call was not sent: there is no sequencer, so the lock is not held; acquire it first")
	}
	outgoing, _ := metadata.FromOutgoingContext(ctx) // a copy
	if outgoing == nil {
		outgoing = metadata.MD{}
	}
	outgoing.Set(MetadataKey, text)
	return metadata.NewOutgoingContext(ctx, outgoing), nil
}
