package main

import (
	"errors"
	"fmt"
	"syscall"
)

// unwritten returns how chubbyctl ends after a command that has returned err. failed is the first error of writing to standard
// output, nil if there was none: a part of an answer must not be taken for the whole. If the reader has gone (chubbyctl ls | head),
// chubbyctl ends as a program that SIGPIPE ends, with the exit code unread and without a word; where there is no SIGPIPE, unread is 0.
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
	switch {
	case own != nil:
		code = own.code
	case err != nil:
		failed = err // which may say what is not done because of it
	}
	return &exitError{code, fmt.Errorf("the answer could not be written to standard output: %w", failed)}
}
