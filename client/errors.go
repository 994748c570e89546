package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Cause is why a session ended, or a lock or a handle with it. Compare errors with it: errors.Is(c.Err(),
// client.GraceOver).
type Cause uint8

const (
	Closed       Cause = 1 // Close was called
	EndedByCell  Cause = 2 // the master reported the end
	GraceOver    Cause = 3 // no master answered within lease and grace period, by the local clock
	LeaseNearEnd Cause = 4 // of a lock: another could hold it within a Margin
	LockReleased Cause = 5 // of a lock: released, or its handle closed
	LockTaken    Cause = 6 // of a lock: the master reported its loss
	Poisoned     Cause = 7 // of an operation on a handle: Handle.Poison was called

	NothingListens Cause = 8 // of a call: no address of the cell has a server (Config.RefusedFor)
	OlderMaster    Cause = 9 // of a call: the master's earlier version of Chubby does not know it
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
	case OlderMaster:
		return "the master runs an earlier version of Chubby"
	}
	return fmt.Sprintf("cause %d", uint8(c))
}

// contextError returns why a context has ended: its error, or a more precise cause.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err { //nolint:errorlint // the same value, not the same kind
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}

// withOperation returns a copy of an error, which may be shared, with the operation and path of a call,
// unless it has its own.
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

func withRequest(err error, id uint64) error {
	e, ok := err.(*api.Error) //nolint:errorlint // what wraps one stays whole
	if !ok || e.Request != "" {
		return err
	}
	own := *e
	own.Request = fmt.Sprintf("%016x", id)
	return &own
}

// closedError is the error of a call without a session after Close.
func closedError() *api.Error {
	return &api.Error{Code: api.Unavailable, Message: "the client is closed", Err: Closed}
}

func withoutCause(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.Unavailable {
		return err
	}
	own := *e
	own.Err = nil
	return &own
}

// systemText returns the innermost text of a dialer's error: "connection refused".
func systemText(err error) string {
	var system *os.SyscallError
	var op *net.OpError
	switch {
	case errors.As(err, &system):
		return system.Err.Error()
	case errors.As(err, &op) && op.Err != nil:
		return op.Err.Error()
	}
	return err.Error()
}

func isAnswer(err error) bool {
	var e *api.Error
	return errors.As(chubbypb.Error(err), &e) && e.Err == nil
}
