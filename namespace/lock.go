package namespace

import (
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Acquire grants the lock to a handle. The errors are LockHeld, with the
// holders' sessions (locks are not recursive: by itself may be the holder);
// LockDelayed, without the remaining time, which the tree does not know;
// HandleClosed, also if by does not have the ephemeral node open; Exists for a
// dying node; and InvalidArgument. A lock that was free takes its generation
// from next, which is called only then; a handle that joins in shared mode gets
// the same generation (Chubby §2.3, §2.4).
func (t *Tree) Acquire(ref Ref, by Holder, mode api.LockMode, next func() api.Generation) (api.Generation, error) {
	if err := by.validate(mode); err != nil {
		return 0, err
	}
	n, err := t.Resolve(ref)
	if err == nil {
		err = t.checkAcquire(n, by.Owner, mode)
	}
	if err != nil {
		return 0, err
	}
	granted := *n
	granted.Holders = append(slices.Clip(n.Holders), by) // clipped, so that append copies
	if !n.held() {
		granted.Mode = mode
		if granted.Lock, err = newer(n.Lock, next); err != nil {
			return 0, err
		}
	}
	t.replace(n, &granted, by.Session)
	return granted.Lock, nil
}

// validate checks a request for a lock by itself, without the tree.
func (h Holder) validate(mode api.LockMode) error {
	switch {
	case !mode.Valid():
		return &refusal.Refusal{Cause: refusal.ModeInvalid, Wanted: mode}
	case h.Session == 0:
		return &refusal.Refusal{Cause: refusal.LockForNobody}
	case h.Delay < 0 || h.Delay > api.MaxLockDelay:
		return &refusal.Refusal{Cause: refusal.DelayOutOfRange, Length: h.Delay}
	case len(h.Reason) > api.MaxReason:
		return &refusal.Refusal{Cause: refusal.ReasonTooLong, Used: int64(len(h.Reason)), Allowed: api.MaxReason}
	}
	return nil
}

// checkAcquire returns why a handle cannot have n's lock in that mode now, or
// nil.
func (t Tree) checkAcquire(n *Node, by Owner, mode api.LockMode) error {
	if n.Dying() {
		return &refusal.Refusal{Cause: refusal.NodeDying}
	}
	if n.Holds(by) {
		return n.lockHeld(refusal.HeldByHandle)
	}
	// A holder must have the ephemeral node open, so that the lock of a dying
	// node is free.
	if _, open := n.opener(by); n.Ephemeral && !open {
		return &refusal.Refusal{Cause: refusal.EphemeralNotOpen}
	}
	//mutants: same (a free lock is not revoked)
	if n.held() && n.Revoked != nil {
		return n.lockHeld(refusal.HeldWhileRevoked)
	}
	if n.held() && n.Mode.Conflicts(mode) {
		return n.lockHeld(refusal.HeldInConflict)
	}
	if d, ok := t.Delay(n.Name); ok && d.Mode.Conflicts(mode) {
		return &refusal.Refusal{Cause: refusal.Delayed, Mode: d.Mode, Wanted: mode, Length: d.For}
	}
	return nil
}

// Release takes the lock from a handle that holds it in that generation. The
// errors are NotHeld and, if the node is gone, HandleClosed. It leaves no delay
// (Chubby §2.4).
func (t *Tree) Release(ref Ref, by Owner, generation api.Generation) (Dropped, error) {
	n, err := t.Resolve(ref)
	switch {
	case err != nil:
		return Dropped{}, err
	case !n.Holds(by):
		return Dropped{}, &refusal.Refusal{Cause: refusal.NotHolder}
	case n.Lock != generation:
		return Dropped{}, &refusal.Refusal{Cause: refusal.HeldInOther, Current: n.Lock, Generation: generation}
	}
	next, left := n.withoutHolders(func(o Owner) bool { return o == by })
	t.replace(n, next, by.Session)
	var d Dropped
	d.noteLeft(n, left, false)
	t.noteDropped(&d, n, next)
	return d, nil
}

// delay puts a delay on the lock's name, as long as the longest lock-delay of
// the failed holders and of the delay that is there already. It reports whether
// any of the failed holders had a lock-delay.
func (t *Tree) delay(name api.Name, mode api.LockMode, failed []Holder, next func() uint64) bool {
	var longest time.Duration
	for _, h := range failed {
		longest = max(longest, h.Delay)
	}
	if longest == 0 {
		return false
	}
	d := Delay{ID: next(), Mode: mode, For: longest}
	//mutants: same (no delay is shorter than any)
	if before, ok := t.Delay(name); ok {
		d.For = max(d.For, before.For)
		if before.Mode == api.Exclusive {
			d.Mode = api.Exclusive
		}
	}
	t.RestoreDelay(name, d)
	return true
}

// EndDelay removes the delay on a name if it still has that ID, and reports
// whether it did.
func (t *Tree) EndDelay(name api.Name, id uint64) bool {
	if d, ok := t.Delay(name); !ok || d.ID != id {
		return false
	}
	t.delays.Delete(name)
	return true
}

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
