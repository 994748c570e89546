package client

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// dialled takes note of an attempt to connect.
func (t *target) noteDial(err error) {
	if errors.Is(err, context.Canceled) {
		return // the attempt was given up, and says nothing of the replica
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = err
}

// explain returns the error of a call as chubbypb.Error does; of a replica that
// cannot be connected to, in the system's words. gRPC wraps those in three
// layers of its own, which for each of five servers is more than anybody reads.
func (t *target) explainError(err error) error {
	err = chubbypb.Error(err)
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.Unavailable || e.Err == nil {
		return err
	}
	t.mu.Lock()
	refused := t.refused
	t.mu.Unlock()
	if refused == nil {
		return err
	}
	own := *e
	own.Message, own.Err = systemText(refused), refused
	return &own
}

// brieflyUnavailable leaves the cause out of an error that says that a replica
// cannot be reached: its message is in the words of the cause.
func withoutCause(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.Unavailable {
		return err
	}
	own := *e
	own.Err = nil
	return &own
}

// plain is the innermost of what a dialer says: "connection refused".
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
