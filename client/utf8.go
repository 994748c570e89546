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

// gRPC does not send a request with text that is not UTF-8. It reports that with a code
// that it uses for faults of either side, after which another attempt may succeed. Here
// none can, so such a request fails with InvalidArgument, which is an answer.

// checkUnaryText is the interceptor for calls with one reply.
func checkUnaryText(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return explainText(request, invoke(ctx, method, request, reply, conn, opts...))
}

// checkStreamText is the interceptor for calls with many replies.
func checkStreamText(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, err
	}
	return textStream{stream}, nil
}

// textStream is a stream whose SendMsg explains why a request could not be sent.
type textStream struct{ grpc.ClientStream }

// SendMsg sends a request.
func (s textStream) SendMsg(request any) error {
	return explainText(request, s.ClientStream.SendMsg(request))
}

// explainText returns err, or, if a field of the request is not UTF-8, an error that
// says which.
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
