package client

import (
	"context"

	"github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Identity is a client's identity as the cell sees it.
type Identity struct {
	// Principal is the name that the cell has found in the client's proof. It is empty where clients do not
	// identify themselves: there a session has the principal of Config.As, if the cell believes it, or else
	// "anonymous".
	Principal string
	// By is the client's proof: "certificate" or "token"; else empty.
	By string
}

// Identify asks the master for the client's identity. The errors are Unauthenticated if the client's proof
// does not count, and Unavailable. A cell of version 0.1.0 identifies no client.
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
