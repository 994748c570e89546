package namespace

import "github.com/chubbylock/chubby/api"

// Revoke begins to take a lock away from its holders: from here on its
// sequencer is not valid, and nobody joins them. They hold it, in the way of
// everybody else, until each has let go or was evicted (decision 10). Of a lock
// that is revoked already it changes nothing. The errors are NotHeld,
// HandleClosed, and InvalidArgument if why is empty or too long.
func (t *Tree) Revoke(ref Ref, why string) (*Node, error) {
	if why == "" || len(why) > MaxWhy {
		return nil, api.Errorf(api.InvalidArgument, "why the lock is taken away is to be said in 1 to %d bytes", MaxWhy)
	}
	n, err := t.Resolve(ref)
	switch {
	case err != nil:
		return nil, err
	case !n.held():
		return nil, api.Errorf(api.NotHeld, "nobody holds the lock")
	case n.Revoked != "":
		return n, nil
	}
	next := *n
	next.Revoked = why
	t.replace(n, &next, 0)
	return &next, nil
}

// MaxWhy is the bytes of a reason that is kept, with the name of who gave it.
const MaxWhy = api.MaxReason + api.MaxPrincipal + 64

// Evict takes a revoked lock from those of its holders that are listed, without
// delay: they have heard of it, or somebody vouches for them. A lock that is not
// revoked in that generation it leaves alone. It looks at each holder once, for there
// may be very many.
func (t *Tree) Evict(ref Ref, generation api.Generation, holders []Owner) Dropped {
	var d Dropped
	n, err := t.Resolve(ref)
	if err != nil || n.Revoked == "" || n.Lock != generation {
		return d
	}
	next, left := n.withoutHolders(among(holders))
	if len(left) == 0 {
		return d
	}
	e := t.edit()
	e.replace(n, next, 0)
	e.disown(next, left)
	e.commit()
	t.noteDropped(&d, n, next)
	return d
}
