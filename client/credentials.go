package client

import (
	"context"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/tokens"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Credentials identify a client without a certificate. Their methods may be called from several goroutines.
type Credentials interface {
	// Token returns a bearer token. Each new connection asks for one, so a token that lasts for minutes will
	// do. A connection ends when its token expires, and another is made; sessions and locks stay.
	Token(ctx context.Context) (string, error)
}

// TokenFile returns the credentials in a file, read for each connection: to renew the token, replace the
// file. Kubernetes gives tokens to programs this way.
func TokenFile(name string) Credentials { return tokenFile(name) }

type tokenFile string

func (f tokenFile) Token(context.Context) (string, error) { return tokens.ReadFile(string(f)) }

// introduce identifies the client first over a new connection. A rejection is no error here: the replica
// answers each call with it.
func (e *encryption) introduce(ctx context.Context, l link) error {
	if e == nil || e.credentials == nil {
		return nil
	}
	token, err := e.credentials.Token(ctx)
	if err != nil {
		return fmt.Errorf("read the token: %w", err)
	}
	over := connection{cell: chubbypb.NewCellClient(l)}
	_, err = over.cell.Authenticate(ctx, &chubbypb.AuthenticateRequest{Token: token})
	switch {
	case err == nil, isAnswer(err):
		return nil
	case status.Code(err) == codes.Unimplemented:
		return nil // an earlier replica, which takes no tokens, and says so for each call
	}
	return err
}

func checkCredentials(ctx context.Context, c Credentials) error {
	if c == nil {
		return nil
	}
	if _, err := c.Token(ctx); err != nil {
		return &api.Error{Code: api.InvalidArgument, Op: "read the token", Message: err.Error(), Err: err}
	}
	return nil
}
