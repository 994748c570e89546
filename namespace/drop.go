package namespace

import (
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Dropped is what an operation released, each list ascending by name.
type Dropped struct {
	Free    []api.Name // locks that lost a holder and have no delay; another claim may succeed now
	Vacant  []Vacancy  // locks that lost their last holder, delayed or not
	Delayed []api.Name // locks on which a delay began or was renewed
	Dying   []Ref      // ephemeral nodes that no handle has open
	Left    []Left     // every holder that let go of a lock, or lost it
}

// Left is a holder that has a lock no more.
type Left struct {
	Lock    Ref
	Holding *api.Holding // as far as the tree knows; the caller adds whose session it was, and how it ended, if the lock was not broken
}

// Vacancy is a lock that has lost its last holder.
type Vacancy struct {
	Lock       Ref
	Generation api.Generation // of the grant that ended
}

// Open records that a handle has an ephemeral node open. It does nothing for a
// permanent node, or if the handle has the node open already. The errors are
// Exists for a dying node, HandleClosed and InvalidArgument.
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
	next.Openers = slices.Insert(slices.Clip(n.Openers), place, by) // clipped, so that Insert copies
	t.replace(n, &next, by.Session)
	return &next, nil
}

// Close releases the lock that a handle holds on a node, without delay, and
// removes the handle from the openers. A handle that has neither may be closed
// too; the only error is HandleClosed.
func (t *Tree) Close(ref Ref, by Owner) (Dropped, error) {
	n, err := t.Resolve(ref)
	if err != nil {
		return Dropped{}, err
	}
	var d Dropped
	next := n
	//mutants: same (else nothing is removed)
	if _, open := n.opener(by); open || n.Holds(by) {
		gone := func(o Owner) bool { return o == by }
		var left []Holder
		next, left = n.withoutHolders(gone)
		next = next.withoutOpeners(gone)
		t.replace(n, next, by.Session)
		d.noteLeft(n, left, false)
	}
	t.noteDropped(&d, n, next)
	return d, nil
}

// DropSession releases everything that a session holds. If the session failed,
// each of its locks that has a lock-delay leaves one, with an ID from next;
// else its locks are free at once. The cost depends on what the session has,
// not on the size of the tree.
func (t *Tree) DropSession(session api.SessionID, failed bool, next func() uint64) Dropped {
	var d Dropped
	gone := func(o Owner) bool { return o.Session == session }
	//mutant: for n := range t.OwnedBy(session) { //by TestMillion of ./raftfsm
	for _, n := range slices.Collect(t.OwnedBy(session)) { // collected, because the loop changes the index
		rest, left := n.withoutHolders(gone)
		rest = rest.withoutOpeners(gone)
		t.replace(n, rest, session)
		if failed && t.delay(n.Name, n.Mode, left, next) {
			d.Delayed = append(d.Delayed, n.Name)
		}
		d.noteLeft(n, left, failed)
		t.noteDropped(&d, n, rest)
	}
	return d
}

// noteDropped adds to d the difference between two versions of a node. A lock under a delay, even
// one that an earlier holder left, is not free: its waiters are served when the delay ends.
func (t Tree) noteDropped(d *Dropped, was, is *Node) {
	if _, delayed := t.Delay(is.Name); !delayed && len(is.Holders) < len(was.Holders) {
		d.Free = append(d.Free, is.Name)
	}
	//mutant: if len(is.Holders) < len(was.Holders) { //by TestVacancyIsToldOnce of ./cell/internal/master
	if was.held() && !is.held() {
		d.Vacant = append(d.Vacant, Vacancy{Lock: is.Ref(), Generation: is.Lock})
	}
	if is.Dying() {
		d.Dying = append(d.Dying, is.Ref())
	}
}

// noteLeft adds to d holders that have left the lock of a node.
func (d *Dropped) noteLeft(was *Node, left []Holder, failed bool) {
	for _, h := range left {
		one := &api.Holding{Session: h.Session, Mode: was.Mode, Generation: was.Lock, FromUnix: h.SinceUnix, Reason: h.Reason}
		if failed {
			one.Delay = h.Delay
		}
		if by := was.Revoked; by != nil { // also if the holder released it in time, as it should
			one.End, one.EndedBy, one.EndedWhy = api.ByBreak, by.Principal, by.Why
		}
		d.Left = append(d.Left, Left{Lock: was.Ref(), Holding: one})
	}
}

// Remove removes a dying node and reports whether it did. It leaves a node that
// has children, that a handle has opened, or that is gone. A dying directory
// can be removed after its last child.
func (t *Tree) Remove(ref Ref) bool {
	n, err := t.Resolve(ref)
	if err != nil || !n.Dying() || n.Children > 0 {
		return false
	}
	t.remove(n)
	return true
}
