package client

import (
	"context"
	"fmt"

	"github.com/chubbylock/chubby/api"
)

// Cause is why a session, or a lock or a handle with it, came to its end. It is an error to
// compare with: errors.Is(c.Err(), client.GraceOver).
type Cause uint8

// The causes.
const (
	Closed       Cause = 1 // Close was called
	EndedByCell  Cause = 2 // the master says that the session has ended
	GraceOver    Cause = 3 // no master was heard of within lease and grace period, by the local clock
	LeaseNearEnd Cause = 4 // of a lock: the moment at which another could hold it is less than a Margin away
	LockReleased Cause = 5 // of a lock: it was released, or its handle closed
	LockTaken    Cause = 6 // of a lock: the master says that it is not held any more
	Poisoned     Cause = 7 // of an operation on a handle: Poison was called

	NothingListens Cause = 8 // of a call: every server of the cell refuses the connection (Config.RefusedFor)
)

// Error describes the cause in a few words.
func (c Cause) Error() string {
	switch c {
	case Closed:
		return "closed by its owner"
	case EndedByCell:
		return "ended by the cell"
	case GraceOver:
		return "no master was heard of within the lease and the grace period"
	case LeaseNearEnd:
		return "the lease is about to run out"
	case LockReleased:
		return "released by its owner"
	case LockTaken:
		return "taken away by the cell"
	case Poisoned:
		return "poisoned by its owner"
	case NothingListens:
		return "every server refuses the connection"
	}
	return fmt.Sprintf("cause %d", uint8(c))
}

// contextError is why a context has ended: its own error, and its cause if that
// says more.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err { //nolint:errorlint // the same value, not the same kind
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}

// about returns an error of the other side, or of the session, as that of one
// operation on one path; the original is left alone, as it may be shared.
func withOperation(e *api.Error, op, path string) *api.Error {
	own := *e
	if own.Op == "" {
		own.Op = op
	}
	if own.Path == "" {
		own.Path = path
	}
	return &own
}

// closedError is what a call without a session gets after Close.
func closedError() *api.Error {
	return &api.Error{Code: api.Unavailable, Message: "the client is closed", Err: Closed}
}
