package wire

import (
	"errors"
	"net"
)

// AcceptError is an error of a listener after which its server retries, unless the listener is closed.
// accept(2) also fails when memory is short or the pending connection broke. net calls few of these errors
// temporary, and a server that ended with one would leave its master unreachable.
type AcceptError struct{ Err error }

// Error implements error.
func (e AcceptError) Error() string { return e.Err.Error() }

var _ net.Error = AcceptError{}

// Temporary reports whether to retry.
func (e AcceptError) Temporary() bool { return !errors.Is(e.Err, net.ErrClosed) }

// Timeout implements net.Error.
func (AcceptError) Timeout() bool { return false }

// Unwrap returns the listener's error.
func (e AcceptError) Unwrap() error { return e.Err }
