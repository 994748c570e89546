package disk

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
)

// damaged is the refusal of a directory whose data was read and is wrong, or is missing.
func damaged(path string, err error, format string, args ...any) error {
	e := dataError(path, err, format, args...)
	e.Code = api.Corrupt
	e.Message += ": " + identity.LossAdvice
	//mutant: return e
	return identity.Refuse(e)
}

// isDenied reports whether an error of the system says nothing about the data: a file
// may not be opened, or cannot be for lack of descriptors or memory. An operator has to
// correct that, and start the replica again.
func isDenied(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) || errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return errno != syscall.EIO && errno != syscall.ENOTDIR && errno != syscall.EISDIR
}

// openError makes an error of opening a directory a refusal, if a store found damage
// there and did not merely fail.
func openError(dir string, store logStore, err error) error {
	if errors.Is(err, identity.ErrRefused) {
		return err
	}
	for _, damage := range slices.Concat([]error{api.Corrupt}, bboltDamage(), store.damage) { // the votes are in a bbolt file
		if errors.Is(err, damage) {
			return damaged(dir, err, "a file in it is damaged")
		}
	}
	return err
}
