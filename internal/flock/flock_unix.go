//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package flock

import (
	"errors"
	"os"
	"syscall"
)

// Lock locks an open file. It fails at once if the file is locked through another open file, of
// this process or another, and with errors.ErrUnsupported if the system has no such locks.
func Lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// IsLocked reports whether a file is locked through another open file. It reports false on a system
// without such locks.
func IsLocked(f *os.File) bool {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	return errors.Is(err, syscall.EWOULDBLOCK)
}
