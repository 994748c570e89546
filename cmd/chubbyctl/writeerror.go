package main

import (
	"errors"
	"fmt"
	"syscall"
)

// unwritten returns how chubbyctl ends after a command returned err. failed is the first error of writing to
// standard output, or nil: a partial answer must not look complete. If the reader has gone (chubbyctl ls |
// head), chubbyctl ends like a program killed by SIGPIPE, silently and with the exit code unread; without
// SIGPIPE on the system, unread is 0.
func unwritten(err, failed error, unread int) error {
	var own *exitError
	switch {
	case failed == nil, err != nil && !errors.Is(err, failed) && !errors.As(err, &own):
		return err // it says more than the write error
	case errors.As(err, &own) && own.err != nil:
		return err
	case errors.Is(failed, syscall.EPIPE) && unread != 0:
		return &exitError{code: unread}
	}
	code := exitFailed
	switch {
	case own != nil:
		code = own.code
	case err != nil:
		failed = err // it may say what was not done because of it
	}
	return &exitError{code, fmt.Errorf("the answer could not be written to standard output: %w", failed)}
}
