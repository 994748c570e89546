package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/flock"
)

// What a data directory holds.
const (
	lockName      = "lock"         // locked while a replica runs; holds its pid, for people
	markerName    = "replica.json" // whose directory this is
	rosterName    = "cell.json"    // of which cell, with which replicas; see package identity
	votesName     = "votes.db"
	logNoteName   = "log-end"   // how far the log has got
	snapshotsName = "snapshots" // the name that raft.FileSnapshotStore uses
	metaName      = "meta.json" // of a snapshot; also its name
	metaSumName   = "meta.sum"  // the checksum of metaName
	stateName     = "state.bin" // its contents
	newSuffix     = ".new"      // of a file that is being made
	tmpSuffix     = ".tmp"      // of a snapshot that is being made
	markerFormat  = 2

	ContradictionName = "contradicted.json" // why no replica may run on the directory any more
)

// dataError is an error of Open about a directory or a file in it.
func dataError(path string, err error, format string, args ...any) *api.Error {
	return &api.Error{
		Code:    api.Unavailable,
		Op:      "open data of replica",
		Path:    path,
		Message: fmt.Sprintf(format, args...),
		Err:     err,
	}
}

// isEmpty reports whether nothing was ever stored in the directory, or it does not
// exist.
func isEmpty(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, dataError(dir, err, "the directory cannot be read")
	}
	for _, e := range entries {
		if e.Name() != lockName && e.Name() != "lost+found" {
			return false, nil
		}
	}
	return true, nil
}

// openDataDir makes the directory if it is absent, removes other users' access to it if
// it is new or a replica's, and locks it.
func openDataDir(dir string) (lock *os.File, err error) {
	if err := makeDir(filepath.Clean(dir)); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, dataError(dir, err, "the directory cannot be read")
	}
	ours, foreign := false, ""
	for _, e := range entries {
		switch e.Name() {
		case lockName, markerName:
			ours = true
		case "lost+found": // of a file system of the replica's own
		default:
			foreign = e.Name()
		}
	}
	if foreign != "" && !ours {
		return nil, dataError(dir, nil, "the directory holds something else (%s, for one): give this replica a directory of its own", foreign)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, dataError(dir, err, "the directory cannot be closed to other users: it has to belong to the user that runs this replica")
	}
	lock, err = lockDataDir(dir)
	if err != nil {
		return nil, err
	}
	// An earlier run may have renamed a file into place and been killed before that
	// was durable; the file is about to be read.
	if err := syncDir(dir); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// lockDataDir keeps other processes out of the directory until the file is closed, or
// this process ends, in whatever way.
func lockDataDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, dataError(path, err, "the lock file cannot be opened")
	}
	if err := flock.Lock(f); err != nil {
		holder := "another process"
		if pid, rerr := io.ReadAll(io.LimitReader(f, 20)); rerr == nil && len(pid) > 0 {
			holder = "process " + strings.TrimSpace(string(pid))
		}
		_ = f.Close() // nothing was written
		return nil, dataError(dir, err, "%s has the directory: stop that replica, or give this one a directory of its own", holder)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	if err != nil {
		_ = f.Close() // the error to report is the first
		return nil, dataError(path, err, "the lock file cannot be written")
	}
	return f, nil
}

// sweepSnapshots removes the remains of interrupted snapshots.
func sweepSnapshots(dir string) error {
	snapshots := filepath.Join(dir, snapshotsName)
	entries, err := os.ReadDir(snapshots)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return dataError(snapshots, err, "the directory cannot be read")
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasSuffix(e.Name(), tmpSuffix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(snapshots, e.Name())); err != nil {
			return dataError(filepath.Join(snapshots, e.Name()), err, "the remains of an interrupted snapshot cannot be removed")
		}
	}
	return nil
}

// newestSnapshot returns the index of the newest snapshot that was completed here and
// not removed since, or 0. A damaged snapshot counts. It fails if this process may not
// read a snapshot's metadata; raft.FileSnapshotStore would skip that snapshot as
// damaged.
func newestSnapshot(dir string) (newest uint64, err error) {
	snapshots := filepath.Join(dir, snapshotsName)
	entries, err := os.ReadDir(snapshots)
	if err != nil {
		return 0, dataError(snapshots, err, "the directory cannot be read")
	}
	for _, e := range entries {
		_, index, ok := snapshotNamed(e.Name())
		if !ok {
			continue
		}
		newest = max(newest, index)
		if _, err := os.ReadFile(filepath.Join(snapshots, e.Name(), metaName)); isDenied(err) {
			return 0, dataError(filepath.Join(snapshots, e.Name()), err, "the metadata of a snapshot cannot be read")
		}
	}
	return newest, nil
}
