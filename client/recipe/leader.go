package recipe

import (
	"context"

	"github.com/chubbylock/chubby/client"
)

// Leader returns the primary of an election, or that there is none, as Observe would tell it first: for
// who asks once. Holder and Value are those of one moment of the call. Value is nil until the holder has
// written the file since it has the lock, whatever the file says of the primary before; a Value is always
// Sure. It needs nothing of Campaign: whoever has the lock is the primary. A file that is not there is
// vacant.
//
// The answer is of the past when it is here: a server that must not obey two primaries checks their
// sequencers. The errors are of ctx, of the session, or an answer such as PermissionDenied. It costs one
// call if the file is in the session's cache, and else four; a program that asks again and again should
// range over Observe.
func Leader(ctx context.Context, c *client.Client, path string) (Reign, error) {
	text, stat, err := c.Get(ctx, path)
	switch {
	case gone(err):
		return Reign{Vacant: true}, nil
	case err != nil:
		return Reign{}, ended(ctx, err, "find the primary of", path)
	}
	// The contents first: a lock that is held after them, and is older than they are, was held when they
	// were written, as all generations come from one counter. Contents that are older are of a time before
	// the holder, or from when it had the lock and had not written.
	x, err := c.Cell().Explain(ctx, path)
	switch {
	case gone(err): // it was deleted meanwhile
		return Reign{Vacant: true}, nil
	case err != nil:
		return Reign{}, ended(ctx, err, "find the primary of", path)
	}
	r := Reign{Vacant: len(x.Lock.Holders) == 0, Token: uint64(x.Lock.Generation)}
	if r.Vacant {
		return r, nil
	}
	r.Holder = x.Lock.Holders[0]
	if stat.Content > x.Lock.Generation {
		r.Value, r.Sure = text, true
	}
	return r, nil
}
