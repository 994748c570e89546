package cell

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/chubbylock/chubby/api"
	wal "github.com/hashicorp/raft-wal"
	berrors "go.etcd.io/bbolt/errors"
)

// ErrRefused is in the chain of every error of a replica that must not run on
// the data directory it has: it is empty, it has lost data or is damaged, or it
// belongs to another replica or cell. Starting the replica again does not help; an operator has to
// look.
var ErrRefused = errors.New("the replica must not run")

// refusal is an error that wraps ErrRefused and prints only its own text.
type refusal struct{ err *api.Error }

// Error returns the text.
func (r refusal) Error() string { return r.err.Error() }

// Is reports whether target is ErrRefused.
func (r refusal) Is(target error) bool { return target == ErrRefused }

// Unwrap returns the *api.Error.
func (r refusal) Unwrap() error { return r.err }

// refused returns a refusal.
func refused(format string, args ...any) error {
	return refusal{&api.Error{Code: api.Unavailable, Message: fmt.Sprintf(format, args...)}}
}

// lossAdvice is what to do about a replica that has lost data, or whose data is
// damaged. With an empty directory it could vote again and break promises that it
// gave: votes, and entries that it acknowledged.
const lossAdvice = "the other replicas go on serving while they are a majority; keep this directory for analysis, and do not start the replica with an empty one: " +
	"it would be refused. This version cannot replace a replica"

// damaged is the refusal of a directory with data in it that was read and is wrong, or
// that is not there.
func damaged(path string, err error, format string, args ...any) error {
	e := dataError(path, err, format, args...)
	e.Code = api.Corrupt
	e.Message += ": " + lossAdvice
	return refusal{e}
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
	if errors.Is(err, ErrRefused) {
		return err
	}
	for _, damage := range []error{api.Corrupt, wal.ErrCorrupt, berrors.ErrInvalid, berrors.ErrChecksum, berrors.ErrVersionMismatch} {
		if errors.Is(err, damage) {
			return damaged(dir, err, "a file in it is damaged")
		}
	}
	return err
}

// lostData is the refusal of a replica whose data directory is not the one that
// the others know under its ID.
func lostData(id, by, cellID string) error {
	return refused("replica %s lost its data: replica %s knows another data directory under this ID, in the cell with the id %.12s. "+
		"That directory has voted and acknowledged entries that this one does not have, so this one must not vote. "+
		"If it still exists, start the replica with it. Otherwise %s", id, by, cellID, lossAdvice)
}

// lostEntries is the refusal of a replica whose data directory holds less than
// another replica has seen in it.
func lostEntries(id string, last uint64, by string, held uint64) error {
	return refused("replica %s lost entries: replica %s knows that it held all entries up to %d, and its data directory ends at %d. "+
		"It was restored from an old copy, or the disk lost what it had reported as written. It must not vote: %s", id, by, held, last, lossAdvice)
}

// newerData is the refusal of a replica that is to follow what a newer version
// wrote.
func newerData(id string, err error) error {
	return refused("replica %s is of version %s and cannot follow its cell: %v. Nothing is damaged. Start this replica with the version that the master has: "+
		"it catches up by itself. Upgrade every replica before one of the new version becomes master, and do not go back once one was", id, Version(), err)
}
