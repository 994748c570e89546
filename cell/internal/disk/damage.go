package disk

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
)

// damaged returns the refusal of a directory whose data is wrong or missing.
func damaged(path string, err error, format string, args ...any) error {
	e := dataError(path, err, format, args...)
	e.Code = api.Corrupt
	e.Message += ": " + identity.LossAdvice
	//mutant: return e
	return identity.Refuse(e)
}

// isDenied reports whether a system error says nothing about the data, as for want of rights, descriptors or
// memory. The operator must correct that and restart the replica.
func isDenied(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) || errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return errno != syscall.EIO && errno != syscall.ENOTDIR && errno != syscall.EISDIR
}

// openError turns an error of opening a directory into a refusal, if a store found damage.
func openError(dir string, store logStore, err error) error {
	if errors.Is(err, identity.ErrRefused) {
		return err
	}
	for _, damage := range slices.Concat([]error{api.Corrupt}, bboltDamage(), store.damage) { // votes are in a bbolt file
		if errors.Is(err, damage) {
			return damaged(dir, err, "a file in it is damaged")
		}
	}
	return err
}
