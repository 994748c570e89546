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
