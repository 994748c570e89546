package tables

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// Waiter is one Acquire in the queue of a lock.
type Waiter struct {
	Claim   raftfsm.Claim
	Lock    namespace.Ref
	Who     string // its principal
	Ticket  Ticket
	Since   session.Instant // by the client's count, if it waited before a fail-over
	Offered bool            // a command that may grant it is on its way
	Doubt   bool            // such a command had no answer, and may be in the log
	Size    int             // bytes of its claim in the log
	Detects bool            // wants an answer if it waits for itself; see waitGraph
	Quiet   bool            // no holder's program learns that it waits
	Told    bool            // holders were told while it waited; see tellConflicts
	Streams int             // of copies of its request; its client may hear any of them; see IsAbsent

	Done   chan struct{}  // closed when it has left the queue
	Answer raftfsm.Answer // once done is closed, if err is nil
	Err    error          // why the log did not answer; once done is closed

	Request  steps.RequestID   // of the first call
	Trace    string            // likewise; "" if it is not traced
	Granting session.Instant   // when its granting command was handed over
	Entry    *steps.EntryTimes // that answered it; once done is closed

	Refusal *refusal.Refusal // that the log is asked to record, or nil
}

// WaiterKey names a waiter by its request.
type WaiterKey struct {
	Session api.SessionID
	Number  api.RequestNumber
}

// Abandoned returns the error for a waiter that this master gives up because of err. A pending command may
// still grant it the lock.
func (w *Waiter) Abandoned(err error) error {
	if !w.Offered && !w.Doubt {
		return err
	}
	return &api.Error{
		Code: api.Uncertain, Err: err,
		Message: "the lock may or may not be granted, for the log was being asked about it; a retry with the same request number finds out",
	}
}

// Key names a waiter.
func (w *Waiter) Key() WaiterKey {
	return WaiterKey{Session: w.Claim.Mutation.Session, Number: w.Claim.Mutation.Number}
}

// IsAbsent reports whether a waiter has no stream: its place is kept, and skipped (decision 8).
func (w *Waiter) IsAbsent() bool { return w.Streams == 0 }

// Owner returns the handle through which a waiter asks.
func (w *Waiter) Owner() namespace.Owner {
	return namespace.Owner{Session: w.Claim.Mutation.Session, Handle: w.Claim.Handle}
}

// LockOwner owns locks and requests: a session, or an owner that sessions of one principal declare. Its work
// counts as one sequence: while one of its requests waits, it releases nothing.
type LockOwner struct {
	session   api.SessionID // 0 if declared
	principal string        // of a declared one, so that no other principal can use it
	declared  string
}

// OwnerOf returns the owner that a session declares, or else the session.
func OwnerOf(session api.SessionID, principal, declared string) LockOwner {
	if declared == "" {
		return LockOwner{session: session}
	}
	return LockOwner{principal: principal, declared: declared}
}

// LockOwner returns the owner for which a request waits.
func (w *Waiter) LockOwner() LockOwner {
	return OwnerOf(w.Claim.Mutation.Session, w.Who, w.Claim.DeclaredOwner)
}
