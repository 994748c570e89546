//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package durable

import (
	"errors"
	"os"
	"syscall"
)

// Lock locks an open file with flock(2), until it is closed or the process ends, for any reason. It fails
// at once if the file is locked through another open file, of this process or another, and with
// errors.ErrUnsupported if the system has no such locks, as Windows.
func Lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// IsLocked reports whether a file is locked through another open file. It reports false on a system
// without such locks.
func IsLocked(f *os.File) bool {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	return errors.Is(err, syscall.EWOULDBLOCK)
}

// SyncDir makes the names in a directory durable: files that were created, renamed or
// removed there.
func SyncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
