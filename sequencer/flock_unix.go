//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sequencer

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes file for this open descriptor alone, or fails at once. The
// system gives it back when the descriptor is closed, also by a crash.
func lockFile(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// syncDirectory makes a rename in a directory durable.
func syncDirectory(name string) error {
	directory, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
