package wire

import (
	"context"
	"crypto/sha256"
	"strings"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc/metadata"
)

// Authenticate implements the RPC, the only one that unknown clients may call.
func (s *service) Authenticate(ctx context.Context, q *pb.AuthenticateRequest) (*pb.AuthenticateReply, error) {
	conn := connOf(ctx)
	if q.GetToken() != "" {
		if err := conn.authenticate(ctx, q.GetToken()); err != nil {
			return nil, s.fail("authenticate", err)
		}
	}
	if err := conn.refused(); err != nil {
		return nil, s.fail("connect", err)
	}
	return &pb.AuthenticateReply{Principal: principalOf(ctx)}, nil
}

// refusedFor is refused for a method.
func (c *heardConn) refusedFor(method string) error {
	if method == pb.Cell_Authenticate_FullMethodName && c.takesToken() {
		return nil
	}
	return c.refused()
}

// takesToken reports whether Authenticate is served: the client is known, or a token may still identify it.
func (c *heardConn) takesToken() bool {
	who := c.identity.Load()
	return c.refusal == nil && (who == nil || who.refusal == nil || who.pending)
}

// authenticate takes a token for its connection. A valid one may be followed by others of the same principal,
// so that a client need not reconnect before its token expires.
func (c *heardConn) authenticate(ctx context.Context, token string) error {
	who := c.identity.Load()
	if c.refusal != nil || who == nil {
		return c.refused() // nil if clients are not identified
	}
	hash := sha256.Sum256([]byte(token))
	if c.tokens == nil || !who.pending && who.token == nil {
		return c.needless(who)
	}
	// One at a time: the first valid token identifies the connection.
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if who = c.identity.Load(); who.token != nil && (who.refusal != nil || *who.token == hash) {
		return who.refusal
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, RefusedFor)
	defer cancel()
	next := &identity{token: &hash}
	var err error
	if next.principal, next.counts, err = c.tokens.Verify(ctx, token); err == nil {
		//mutant: err = nil //by TestTokensOverGRPC of ./cell
		err = CheckPrincipal(next.principal)
	}
	switch {
	case err != nil && context.Cause(caller) != nil:
		return context.Cause(caller) // it may not have waited for the keys, so nothing is known of the token
	case err != nil && who.pending:
		next.refusal, next.expiry = unauthenticated(err.Error(), c.tokens), who.expiry
		c.identity.Store(next)
		return next.refusal
	case err != nil:
		return unauthenticated(err.Error(), c.tokens)
	case !who.pending && who.principal != next.principal:
		return api.Errorf(api.Unauthenticated, "the token names %q, and this connection is that of %q: connect anew", next.principal, who.principal)
	case who.pending && !who.expiry.Stop():
		return api.Errorf(api.Unavailable, "the connection is being closed, since it took %v to show a token that counts; connect anew", RefusedFor)
	}
	c.identity.Store(next)
	c.account.all.knows(c, next.principal)
	return nil
}

// needless returns the answer to a token that a connection does not take.
func (c *heardConn) needless(who *identity) error {
	if who.refusal != nil {
		return who.refusal
	}
	if c.tokens == nil {
		return api.Errorf(api.Unauthenticated, "this cell takes no tokens: it knows clients by certificates, and that of this connection names %q; leave the token away", who.principal)
	}
	return api.Errorf(api.Unauthenticated, "the certificate of this connection names %q already: show either a certificate or a token", who.principal)
}

// checkMetadata takes the token in the metadata of a call, if any.
func checkMetadata(ctx context.Context, conn *heardConn) error {
	if conn.identity.Load() == nil {
		return nil // clients are not identified
	}
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) == 0 {
		return nil
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "bearer") || token == "" {
		return api.Errorf(api.Unauthenticated, "the metadata authorization has to be: Bearer TOKEN")
	}
	return conn.authenticate(ctx, strings.TrimSpace(token))
}
