//go:build unix && !solaris && !illumos && !aix

package main

import (
	"errors"
	"os"
	"syscall"
)

// claim takes an open file for this process, for as long as it is open. The system gives
// it back when the process is killed.
func claim(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// claimed reports whether another has claimed a file.
func claimed(f *os.File) bool {
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
