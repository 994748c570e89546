package client

import "context"

// Sessions gives sessions to code that survives their loss: a Config, for sessions of its own, or a Keeper,
// for shared ones.
type Sessions interface {
	// Renew calls the functions with a session, and with another after a loss, as the function Renew does.
	Renew(ctx context.Context, register ...func(ctx context.Context, c *Client) error) error
}

// Renew is the function Renew, with sessions of its own.
func (c Config) Renew(ctx context.Context, register ...func(ctx context.Context, c *Client) error) error {
	return Renew(ctx, c, register...)
}

// Renew calls the functions register with the Keeper's session, and again with another after a loss, as the
// function Renew does, but shares the session and does not close it. It ends with ctx, with an error of a
// function while the session lasts, or when the Keeper is closed (see Do).
func (k *Keeper) Renew(ctx context.Context, register ...func(ctx context.Context, c *Client) error) error {
	for {
		if err := k.renewOnce(ctx, register); err != nil {
			return err
		}
	}
}

// renewOnce is Renew for one session. It returns nil if another should follow.
func (k *Keeper) renewOnce(ctx context.Context, register []func(ctx context.Context, c *Client) error) error {
	s, err := k.enter(ctx)
	if err != nil {
		return err
	}
	defer k.leave(ctx, s)
	return runFunctions(ctx, s.client, register)
}
