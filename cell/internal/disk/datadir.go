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
	"github.com/chubbylock/chubby/internal/durable"
)

// Files of a data directory.
const (
	lockName      = "lock"         // locked while a replica runs; has its pid, for people
	markerName    = "replica.json" // the directory's replica
	rosterName    = "cell.json"    // its cell and the cell's replicas; see package identity
	votesName     = "votes.db"
	logNoteName   = "log-end"   // the last index of the log
	snapshotsName = "snapshots" // raft.FileSnapshotStore's name for it
	metaName      = "meta.json" // of a snapshot; also raft's name
	metaSumName   = "meta.sum"  // checksum of metaName
	stateName     = "state.bin" // contents of a snapshot
	newSuffix     = ".new"      // of an unfinished file
	tmpSuffix     = ".tmp"      // of an unfinished snapshot
	markerFormat  = 2

	ContradictionName = "contradicted.json" // why no replica may run on the directory
)

func dataError(path string, err error, format string, args ...any) *api.Error {
	return &api.Error{
		Code:    api.Unavailable,
		Op:      "open data of replica",
		Path:    path,
		Message: fmt.Sprintf(format, args...),
		Err:     err,
	}
}

// isEmpty reports whether the directory is absent, or nothing was ever stored in it.
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

// openDataDir creates the directory if it is absent, removes other users' access if it is new or a replica's,
// and locks it.
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
		case "lost+found": // on a file system of its own
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
	// An earlier run may have died between a rename and its sync; the file is about to be read.
	if err := syncDir(dir); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// lockDataDir keeps other processes out of the directory until the file closes or this process ends.
func lockDataDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, dataError(path, err, "the lock file cannot be opened")
	}
	if err := durable.Lock(f); err != nil {
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
		_ = f.Close() // report only the first error
		return nil, dataError(path, err, "the lock file cannot be written")
	}
	return f, nil
}

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

// newestSnapshot returns the index of the newest complete snapshot, damaged or not, or 0. It fails if this
// process may not read a snapshot's metadata, which raft.FileSnapshotStore would skip as damaged.
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

// makeDir creates a directory and its absent parents, durably: a name lost in a power failure takes all below with it.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return dataError(dir, err, "the directory cannot be made")
	}
	return syncDir(parent)
}

// writeDurably replaces a file's contents. After a crash it has the old or the new ones.
func writeDurably(path string, text []byte) error {
	if err := durable.WriteFile(path+newSuffix, text, 0o600); err != nil {
		return dataError(path, err, "it cannot be written")
	}
	return moveIntoPlace(path)
}

// moveIntoPlace renames path+newSuffix to path, durably.
func moveIntoPlace(path string) error {
	if err := os.Rename(path+newSuffix, path); err != nil {
		return dataError(path, err, "it cannot be renamed into place")
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	if err := durable.SyncDir(dir); err != nil {
		return dataError(dir, err, "the directory cannot be synced")
	}
	return nil
}
