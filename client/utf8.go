package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Text that is not UTF-8 does not travel: gRPC refuses to write such a request, and
// says so with the code that it has for faults of either side, which another attempt
// may help against. Here it does not, so the error of a request that holds such text is
// an answer.

// refuseUnary gives a call of one reply that error.
func checkUnaryText(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return explainText(request, invoke(ctx, method, request, reply, conn, opts...))
}

// refuseStream gives it a call of many replies.
func checkStreamText(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, err
	}
	return textStream{stream}, nil
}

// textStream is a stream whose requests are looked at if they cannot be sent.
type textStream struct{ grpc.ClientStream }

// SendMsg sends a request.
func (s textStream) SendMsg(request any) error {
	return explainText(request, s.ClientStream.SendMsg(request))
}

// explainText returns the error of a request, or which of its fields is no UTF-8.
func explainText(request any, err error) error {
	if status.Code(err) != codes.Internal {
		return err
	}
	field := chubbypb.NotUTF8(request)
	if field == "" {
		return err
	}
	return &api.Error{Code: api.InvalidArgument, Message: fmt.Sprintf("the field %q of the request is not valid UTF-8, so it was not sent; give it other text", field)}
}
