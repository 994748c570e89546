package namespace

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Revocation is a lock that is being taken away from its holders.
type Revocation struct {
	Lock       Ref
	Generation api.Generation
	Holders    []Owner
	Reason     api.EndReason
	By         refusal.Intervention
}

// Revoke begins to take a lock away from its holders: from now on its sequencer
// is invalid, and no handle can join them. They keep the lock until each has
// released it or was evicted (decision 10). Revoke changes nothing if the lock
// is revoked already. The errors are NotHeld, HandleClosed, and InvalidArgument
// if the reason is longer than api.MaxReason.
func (t *Tree) Revoke(ref Ref, by refusal.Intervention) (*Node, error) {
	if len(by.Why) > api.MaxReason {
		return nil, &refusal.Refusal{Cause: refusal.RevocationTooLong, Allowed: api.MaxReason}
	}
	n, err := t.Resolve(ref)
	switch {
	case err != nil:
		return nil, err
	case !n.held():
		return nil, &refusal.Refusal{Cause: refusal.HeldByNobody}
	case n.Revoked != nil:
		return n, nil
	}
	next := *n
	next.Revoked = &by
	t.replace(n, &next, 0)
	return &next, nil
}

// Evict takes a revoked lock from the listed holders, without delay: they have acknowledged the
// revocation, or the master or an operator vouches for them. It does nothing if the lock is not
// revoked in that generation. It looks at each holder once, because there may be very many.
func (t *Tree) Evict(ref Ref, generation api.Generation, holders []Owner) Dropped {
	var d Dropped
	n, err := t.Resolve(ref)
	if err != nil || n.Revoked == nil || n.Lock != generation {
		//mutants: same (d is zero)
		return d
	}
	//mutant: next, left := n, []Holder(nil); for _, by := range holders { rest, gone := next.withoutHolders(func(o Owner) bool { return o == by }); next, left = rest, append(left, gone...) }
	next, left := n.withoutHolders(among(holders))
	if len(left) == 0 {
		//mutants: same (d is zero)
		return d
	}
	t.replace(n, next, 0)
	t.disown(next, left)
	d.noteLeft(n, left, false)
	t.noteDropped(&d, n, next)
	return d
}
