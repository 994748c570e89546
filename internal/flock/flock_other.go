//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package flock

import (
	"errors"
	"os"
)

// Lock fails: this system has no such locks.
func Lock(*os.File) error { return errors.ErrUnsupported }

// IsLocked reports false: this system has no such locks.
func IsLocked(*os.File) bool { return false }
