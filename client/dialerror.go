package client

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// noteDial notes the result of an attempt to connect.
func (t *target) noteDial(err error) {
	if errors.Is(err, context.Canceled) {
		return // the attempt was given up, which says nothing of the replica
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = err
}

// explainError returns the error of a call as chubbypb.Error does; that of a replica
// that cannot be connected to, in the system's words. gRPC wraps those in three
// layers of its own, which for each of five servers is more than people read.
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
	if errors.As(refused, &e) && e.Code == api.Unauthenticated {
		return e
	}
	own := *e
	own.Message, own.Err = systemText(refused), refused
	return &own
}

// withoutCause removes the cause from an error that says that a replica cannot be
// reached: its message has the words of the cause already.
func withoutCause(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.Unavailable {
		return err
	}
	own := *e
	own.Err = nil
	return &own
}

// systemText returns the innermost text of an error of a dialer: "connection
// refused".
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
