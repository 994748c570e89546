package client

import "context"

// Sessions is where code that goes on through the loss of sessions gets them from: a
// Config, for sessions of its own, or a Keeper, for those that others use too.
type Sessions interface {
	// Renew calls the functions with a session, and with another when that is lost, as the
	// function Renew does.
	Renew(ctx context.Context, register ...func(ctx context.Context, c *Client) error) error
}

// Renew is the function Renew, with sessions of its own.
func (c Config) Renew(ctx context.Context, register ...func(ctx context.Context, c *Client) error) error {
	return Renew(ctx, c, register...)
}

// Renew calls the functions register with the session that there is, and again with
// another when that is lost, as the function Renew does; but the session is the Keeper's,
// which others use too, and it is not closed. It ends with ctx, with an error of a function while the
// session lasts, or when the Keeper is closed (see Do).
func (k *Keeper) Renew(ctx context.Context, register ...func(ctx context.Context, c *Client) error) error {
	for {
		if err := k.renewOnce(ctx, register); err != nil {
			return err
		}
	}
}

// renewOnce is Renew for one session. It returns nil if there is to be another.
func (k *Keeper) renewOnce(ctx context.Context, register []func(ctx context.Context, c *Client) error) error {
	s, err := k.enter(ctx)
	if err != nil {
		return err
	}
	defer k.leave(ctx, s)
	return runFunctions(ctx, s.client, register)
}
