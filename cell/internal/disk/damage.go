package disk

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	wal "github.com/hashicorp/raft-wal"
	berrors "go.etcd.io/bbolt/errors"
)

// damaged is the refusal of a directory with data in it that was read and is wrong, or
// that is not there.
func damaged(path string, err error, format string, args ...any) error {
	e := dataError(path, err, format, args...)
	e.Code = api.Corrupt
	e.Message += ": " + identity.LossAdvice
	return identity.Refuse(e)
}

// denied reports an error of the system's that says nothing of the data: a file that may
// not be opened, or cannot be for want of descriptors or memory. It is to be put right,
// and the replica to be started again.
func denied(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) || errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return errno != syscall.EIO && errno != syscall.ENOTDIR && errno != syscall.EISDIR
}

// openError makes an error of opening a directory a refusal, if a store found there what
// it cannot read, and did not merely fail.
func openError(dir string, err error) error {
	if errors.Is(err, identity.ErrRefused) {
		return err
	}
	for _, damage := range []error{api.Corrupt, wal.ErrCorrupt, berrors.ErrInvalid, berrors.ErrChecksum, berrors.ErrVersionMismatch} {
		if errors.Is(err, damage) {
			return damaged(dir, err, "a file in it is damaged")
		}
	}
	return err
}
