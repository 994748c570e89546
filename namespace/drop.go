package namespace

import (
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Dropped is what an operation let go, each list ascending by name.
type Dropped struct {
	Free    []api.Name // locks that nobody holds any more, or that one holder less holds; delayed ones are not among them
	Vacant  []Vacancy  // locks that nobody holds any more, delayed or not
	Delayed []api.Name // locks on which a delay began or was renewed
	Dying   []Ref      // ephemeral nodes that nobody has open any more
}

// Vacancy is a lock that has lost its last holder.
type Vacancy struct {
	Lock       Ref
	Generation api.Generation // that it was held in
}

// Open records that a handle has an ephemeral node open; of a dying one it is
// an error (Exists, in the words of Create). Of a permanent one it does
// nothing, and so it does of one that the handle has open already. The other
// errors are HandleClosed and InvalidArgument.
func (t *Tree) Open(ref Ref, by Owner) (*Node, error) {
	n, err := t.Resolve(ref)
	switch {
	case err != nil:
		return nil, err
	case by.Session == 0:
		return nil, &refusal.Refusal{Cause: refusal.NoOpener}
	case n.Dying():
		return nil, &refusal.Refusal{Cause: refusal.NodeDying}
	case !n.Ephemeral:
		return n, nil
	}
	place, open := n.opener(by)
	if open {
		return n, nil
	}
	next := *n
	next.Openers = slices.Insert(slices.Clip(n.Openers), place, by) // clipped, so that it copies
	t.replace(n, &next, by.Session)
	return &next, nil
}

// Close undoes what a handle holds of a node: it releases its lock without
// delay and takes it from the openers. A handle that held nothing is none the
// worse; the only error is HandleClosed.
func (t *Tree) Close(ref Ref, by Owner) (Dropped, error) {
	n, err := t.Resolve(ref)
	if err != nil {
		return Dropped{}, err
	}
	var d Dropped
	next := n
	if _, open := n.opener(by); open || n.Holds(by) {
		gone := func(o Owner) bool { return o == by }
		next, _ = n.withoutHolders(gone)
		next = next.withoutOpeners(gone)
		t.replace(n, next, by.Session)
	}
	t.noteDropped(&d, n, next)
	return d, nil
}

// DropSession undoes everything that a session holds. Without failed its locks
// are free at once; with it, each that has a lock-delay leaves one, with an ID
// from next. It takes time for what the session has, however large the tree.
func (t *Tree) DropSession(session api.SessionID, failed bool, next func() uint64) Dropped {
	var d Dropped
	gone := func(o Owner) bool { return o.Session == session }
	e := t.edit()
	for n := range t.OwnedBy(session) {
		rest, left := n.withoutHolders(gone)
		rest = rest.withoutOpeners(gone)
		e.replace(n, rest, session)
		if failed && t.delay(n.Name, n.Mode, left, next) {
			d.Delayed = append(d.Delayed, n.Name)
		}
		t.noteDropped(&d, n, rest)
	}
	e.commit()
	return d
}

// noteDropped adds to d what was let go between two versions of a node. A lock under a
// delay, be it of an earlier holder, is not free: the end of the delay is what
// those who wait for it will hear of.
func (t Tree) noteDropped(d *Dropped, was, is *Node) {
	if _, delayed := t.Delay(is.Name); !delayed && len(is.Holders) < len(was.Holders) {
		d.Free = append(d.Free, is.Name)
	}
	if was.held() && !is.held() {
		d.Vacant = append(d.Vacant, Vacancy{Lock: is.Ref(), Generation: is.Lock})
	}
	if is.Dying() {
		d.Dying = append(d.Dying, is.Ref())
	}
}

// Remove removes a dying node and reports whether it did: not one that has
// children (it goes with the last of them), that was opened again, or that is
// gone.
func (t *Tree) Remove(ref Ref) bool {
	n, err := t.Resolve(ref)
	if err != nil || !n.Dying() || n.Children > 0 {
		return false
	}
	t.remove(n)
	return true
}
