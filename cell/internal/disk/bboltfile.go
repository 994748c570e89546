package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// boltOptions returns the options of both bbolt files. Without a synced freelist, free pages do not slow a
// commit; opening scans the file instead.
func boltOptions() *bbolt.Options {
	return &bbolt.Options{Timeout: boltLockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
}

func bboltDamage() []error {
	return []error{berrors.ErrInvalid, berrors.ErrChecksum, berrors.ErrVersionMismatch}
}

// makeFile creates a bbolt file, if it is absent, under another name first: bbolt does so without crash safety,
// and never syncs the directory.
func makeFile(path string, create func(path string) (io.Closer, error)) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return dataError(path, err, "the file cannot be looked at")
		}
		return nil
	}
	if err := os.RemoveAll(path + newSuffix); err != nil {
		return dataError(path+newSuffix, err, "the remains of an interrupted start cannot be removed")
	}
	db, err := create(path + newSuffix)
	if db != nil {
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		return dataError(path, err, "the file cannot be made")
	}
	return moveIntoPlace(path)
}
