package master

import (
	"cmp"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// waiter is one Acquire in the queue of a lock.
type waiter struct {
	claim   raftfsm.Claim
	lock    namespace.Ref
	who     string // its principal
	ticket  Ticket
	since   session.Instant // by the client's count, if it waited before a fail-over
	offered bool            // a command that may grant it is on its way
	doubt   bool            // such a command had no answer, and may be in the log
	size    int             // bytes of its claim in the log
	detects bool            // wants an answer if it waits for itself; see waitGraph
	quiet   bool            // no holder's program learns that it waits
	told    bool            // holders were told while it waited; see tellConflicts
	streams int             // of copies of its request; its client may hear any of them; see isAbsent

	done   chan struct{}  // closed when it has left the queue
	answer raftfsm.Answer // once done is closed, if err is nil
	err    error          // why the log did not answer; once done is closed

	request  steps.RequestID   // of the first call
	trace    string            // likewise; "" if it is not traced
	granting session.Instant   // when its granting command was handed over
	entry    *steps.EntryTimes // that answered it; once done is closed

	refusal *refusal.Refusal // that the log is asked to record, or nil
}

// waiterKey names a waiter by its request.
type waiterKey struct {
	session api.SessionID
	number  api.RequestNumber
}

// abandoned returns the error for a waiter that this master gives up because of err. A pending command may
// still grant it the lock.
func (w *waiter) abandoned(err error) error {
	if !w.offered && !w.doubt {
		return err
	}
	return &api.Error{Code: api.Uncertain, Message: "the lock may or may not be granted, for the log was being asked about it; a retry with the same request number finds out", Err: err}
}

func (w *waiter) key() waiterKey {
	return waiterKey{session: w.claim.Mutation.Session, number: w.claim.Mutation.Number}
}

// isAbsent reports whether a waiter has no stream: its place is kept, and skipped (decision 8).
func (w *waiter) isAbsent() bool { return w.streams == 0 }

func (w *waiter) owner() namespace.Owner {
	return namespace.Owner{Session: w.claim.Mutation.Session, Handle: w.claim.Handle}
}

// lockOwner owns locks and requests: a session, or an owner that sessions of one principal declare. Its work
// counts as one sequence: while one of its requests waits, it releases nothing.
type lockOwner struct {
	session   api.SessionID // 0 if declared
	principal string        // of a declared one, so that no other principal can use it
	declared  string
}

func ownerOf(session api.SessionID, principal, declared string) lockOwner {
	if declared == "" {
		return lockOwner{session: session}
	}
	return lockOwner{principal: principal, declared: declared}
}

// lockOwner returns the owner for which a request waits.
func (w *waiter) lockOwner() lockOwner {
	return ownerOf(w.claim.Mutation.Session, w.who, w.claim.DeclaredOwner)
}

// askers are requests that wait because a lock is held.
type askers struct {
	first   [2]*waiter // the first loud and first quiet one, or nil
	unknown []*waiter  // those that holders do not know, in order
}

// asking returns the waiters that cannot get a lock held in that mode: they conflict, or stand behind one
// that does. tried comes last; it may be nil. asking marks them as told.
func (q *queues) asking(lock namespace.Ref, mode api.LockMode, tried *waiter) (a askers) {
	blocked := false
	look := func(w *waiter) {
		if blocked = blocked || w.claim.Mode.Conflicts(mode); !blocked {
			return
		}
		//mutant: if true {
		if !w.told {
			w.told = true
			a.unknown = append(a.unknown, w)
		}
		first := &a.first[0]
		if w.quiet {
			first = &a.first[1]
		}
		*first = cmp.Or(*first, w)
	}
	for _, w := range q.byName[lock.Name] {
		if w.lock == lock && !q.isSkipped(w) {
			look(w)
		}
	}
	if tried != nil {
		look(tried)
	}
	return a
}
