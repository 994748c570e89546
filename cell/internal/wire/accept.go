package wire

import (
	"errors"
	"net"
)

// AcceptError is an error of a listener that its server waits a little for, and then goes
// on: the next connection may be accepted, unless the listener is closed. accept(2) fails
// for want of memory, too, and for what has happened to the connection that waits; net
// takes few of these for temporary, and a server that ended with one would leave a master
// that nobody reaches.
type AcceptError struct{ Err error }

// Error implements error.
func (e AcceptError) Error() string { return e.Err.Error() }

var _ net.Error = AcceptError{}

// Temporary reports whether to go on.
func (e AcceptError) Temporary() bool { return !errors.Is(e.Err, net.ErrClosed) }

// Timeout implements net.Error.
func (AcceptError) Timeout() bool { return false }

// Unwrap returns the listener's error.
func (e AcceptError) Unwrap() error { return e.Err }
