package main

import (
	"errors"
	"fmt"
	"syscall"
)

// unwritten returns how a command ends that has ended with err, and of whose standard output a write failed, nil if none did.
// Nobody who waits for an answer takes a part of it for the whole. If the reader has gone (chubbyctl ls | head) it ends as
// programs do that SIGPIPE ends, with the exit code unread and without a word; 0 is where there is no SIGPIPE.
func unwritten(err, failed error, unread int) error {
	var own *exitError
	switch {
	case failed == nil, err != nil && !errors.Is(err, failed) && !errors.As(err, &own):
		return err // it says more than that nobody was told
	case errors.As(err, &own) && own.err != nil:
		return err
	case errors.Is(failed, syscall.EPIPE) && unread != 0:
		return &exitError{code: unread}
	}
	code := exitFailed
	if own != nil {
		code = own.code
	}
	return &exitError{code, fmt.Errorf("the answer could not be written to standard output: %w", failed)}
}
