package client

import (
	"context"
	"errors"
	"io"

	"github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type keepAliveCalls struct {
	single *connection // to an earlier release's master, with one reply to each KeepAlive
}

// send sends a KeepAlive, passes on the master's interim messages, and returns the last reply.
func (c *keepAliveCalls) send(ctx context.Context, conn *connection, request *chubbypb.KeepAliveRequest, aside func(*chubbypb.KeepAliveReply)) (*chubbypb.KeepAliveReply, error) {
	if c.single == conn {
		return conn.chubby.KeepAlive(ctx, request)
	}
	replies, err := conn.chubby.KeepAlives(ctx, request)
	for err == nil {
		var reply *chubbypb.KeepAliveReply
		switch reply, err = replies.Recv(); {
		case err != nil:
		case !reply.GetMore():
			return reply, nil
		default:
			aside(reply)
		}
	}
	switch {
	case status.Code(err) == codes.Unimplemented:
		c.single = conn
		return conn.chubby.KeepAlive(ctx, request)
	case errors.Is(err, io.EOF):
		return nil, status.Error(codes.Unavailable, "the master ended a KeepAlive without an answer")
	}
	return nil, err
}
