package client

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// A request with text that is not UTF-8 cannot be encoded. gRPC reports that with a code after which another
// attempt may succeed. Here none can, so such a request fails with InvalidArgument, which is an answer.

type textStream struct{ grpc.ClientStream }

func (s textStream) SendMsg(request any) error {
	return explainText(request, s.ClientStream.SendMsg(request))
}

// explainText returns err, or an error that names the field of the request that is not UTF-8.
func explainText(request any, err error) error {
	//mutant: if status.Code(err) == codes.Internal {
	if status.Code(err) != codes.Internal {
		return err
	}
	field := chubbypb.NotUTF8(request)
	if field == "" {
		return err
	}
	return &api.Error{Code: api.InvalidArgument, Message: fmt.Sprintf("the field %q of the request is not valid UTF-8, so it was not sent; give it other text", field)}
}
