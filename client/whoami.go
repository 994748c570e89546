package client

import (
	"context"

	"github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Identity is whom a cell takes a client for.
type Identity struct {
	// Principal is the name that the cell has found in what the client shows. It is empty where
	// clients do not have to say who they are: there a session has the principal that
	// Config.As says, if the cell believes it, or else "anonymous".
	Principal string
	// By is what the client shows: "certificate" or "token"; empty if it shows nothing.
	By string
}

// Identify asks the master for whom it takes the client. The errors are Unauthenticated if what the client shows does not count,
// and Unavailable. A cell of version 0.1.0 asks nobody who he is.
func Identify(ctx context.Context, c *Cell) (Identity, error) {
	var id Identity
	err := c.ask(ctx, "identify", rootPath(c.cfg), func(ctx context.Context, t *target) error {
		reply, err := t.data.cell.Authenticate(ctx, &chubbypb.AuthenticateRequest{})
		id.Principal = reply.GetPrincipal()
		if status.Code(err) == codes.Unimplemented {
			return nil
		}
		return err
	})
	if err != nil {
		return Identity{}, err
	}
	switch e := c.pool.encryption; {
	case e == nil:
	case e.credentials != nil:
		id.By = "token"
	default:
		id.By = "certificate"
	}
	return id, nil
}
