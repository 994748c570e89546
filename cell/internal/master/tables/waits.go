package tables

import (
	"cmp"
	"maps"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// OfOwner returns the waiters of an owner.
func (q *Queues) OfOwner(o LockOwner) (list []*Waiter) {
	if o.declared != "" {
		return slices.Collect(maps.Keys(q.declared[o]))
	}
	for _, w := range q.BySession[o.session] {
		if w.Claim.DeclaredOwner == "" {
			list = append(list, w)
		}
	}
	return list
}

// Askers are requests that wait because a lock is held.
type Askers struct {
	First   [2]*Waiter // the first loud and first quiet one, or nil
	Unknown []*Waiter  // those that holders do not know, in order
}

// Asking returns the waiters that cannot get a lock held in that mode: they conflict, or stand behind one
// that does. tried comes last; it may be nil. Asking marks them as told.
func (q *Queues) Asking(lock namespace.Ref, mode api.LockMode, tried *Waiter) (a Askers) {
	blocked := false
	look := func(w *Waiter) {
		if blocked = blocked || w.Claim.Mode.Conflicts(mode); !blocked {
			return
		}
		//mutant: if true {
		if !w.Told {
			w.Told = true
			a.Unknown = append(a.Unknown, w)
		}
		first := &a.First[0]
		if w.Quiet {
			first = &a.First[1]
		}
		*first = cmp.Or(*first, w)
	}
	for _, w := range q.ByName[lock.Name] {
		if w.Lock == lock && !q.IsSkipped(w) {
			look(w)
		}
	}
	if tried != nil {
		look(tried)
	}
	return a
}

// HearsOf reports whether a holder gets the event for a waiter: not for its own request, and for a quiet one
// only if it may keep the lock.
func (one *OpenHandle) HearsOf(w *Waiter) bool {
	if w.Offered && w.Claim.By() == one.Owner {
		return false
	}
	//mutant: return true
	return !w.Quiet || one.CachesLock
}
