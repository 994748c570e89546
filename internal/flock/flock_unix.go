//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package flock

import (
	"errors"
	"os"
	"syscall"
)

// Lock locks an open file, or fails at once if it is locked through another open file, of
// this process or another. It fails with errors.ErrUnsupported if the system has no such
// locks.
func Lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// IsLocked reports whether a file is locked through another open file. It is not on a system
// that has no such locks.
func IsLocked(f *os.File) bool {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	return errors.Is(err, syscall.EWOULDBLOCK)
}
