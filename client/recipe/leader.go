package recipe

import (
	"context"

	"github.com/chubbylock/chubby/client"
)

// Leader returns the primary of an election, or a vacancy: the first item of Observe, for a single look.
// Holder and Value are those of one moment of the call. Value is nil until the holder has written the file
// under its lock; a Value is always Sure. Leader needs no Campaign: the holder of the lock is the primary. An
// absent file is vacant.
//
// The answer may be outdated: a server that must not obey two primaries checks their sequencers. The errors
// are of ctx, of the session, or an answer such as PermissionDenied. It costs one call if the file is in the
// session's cache, otherwise four; for repeated looks, range over Observe.
func Leader(ctx context.Context, c *client.Client, path string) (Reign, error) {
	text, stat, err := c.Get(ctx, path)
	switch {
	case gone(err):
		return Reign{Vacant: true}, nil
	case err != nil:
		return Reign{}, ended(ctx, err, "find the primary of", path)
	}
	// Contents first: a lock that is held after the read, and is older than the contents, was held when they
	// were written, as one counter gives all generations. Older contents precede the holder's first write.
	x, err := c.Cell().Explain(ctx, path)
	switch {
	case gone(err): // deleted meanwhile
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
