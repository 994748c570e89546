//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package durable

import (
	"errors"
	"os"
)

// Lock fails: this system has no such locks.
func Lock(*os.File) error { return errors.ErrUnsupported }

// IsLocked reports false: this system has no such locks.
func IsLocked(*os.File) bool { return false }

// SyncDir does nothing: on this system directories cannot be synced.
func SyncDir(string) error { return nil }
