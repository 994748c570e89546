package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"golang.org/x/sys/unix"
)

// What a data directory holds.
const (
	lockName      = "lock"         // locked while a replica runs; holds its pid, for people
	markerName    = "replica.json" // whose directory this is
	rosterName    = "cell.json"    // of which cell, with which replicas; see identity
	votesName     = "votes.db"
	logNoteName   = "log-end"   // how far it has got
	snapshotsName = "snapshots" // raft.FileSnapshotStore's own choice
	metaName      = "meta.json" // of a snapshot; its own choice, too
	stateName     = "state.bin" // its contents
	newSuffix     = ".new"      // of a file that is being made
	tmpSuffix     = ".tmp"      // of a snapshot that is being made
	markerFormat  = 2
)

// marker says whose data directory it is in. It is written once, after every
// other file of a new directory, so that where it is the rest must be, too.
type marker struct {
	Format      int      `json:"format"`
	Cell        string   `json:"cell"`
	ID          string   `json:"id"`
	LogStore    LogStore `json:"log_store"`
	Incarnation string   `json:"incarnation"` // random; see identity
}

// dataError is an error of openStores about a directory or a file in it.
func dataError(path string, err error, format string, args ...any) *api.Error {
	return &api.Error{Code: api.Unavailable, Op: "open data of replica", Path: path, Message: fmt.Sprintf(format, args...), Err: err}
}

// isEmpty reports that nothing was ever stored in the directory, or that it does
// not exist.
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

// openDataDir makes the directory if it is absent, closes it to others if it is
// new or a replica's, and locks it.
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
	// What an earlier run has renamed into place, and was killed before it made
	// durable, is about to be believed.
	if err := syncDir(dir); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// makeDir makes a directory and those above it that are absent, durably: a name
// that is lost in a power failure takes everything below with it.
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

// lockDataDir keeps every other process out of the directory until the file is
// closed, or this process ends, however it does.
func lockDataDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, dataError(path, err, "the lock file cannot be opened")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
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

// readMarker returns the directory's marker, nil if it has none.
func readMarker(dir string) (*marker, error) {
	path := filepath.Join(dir, markerName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, dataError(path, err, "it cannot be read")
	}
	m := &marker{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, damaged(path, err, "it is damaged")
	}
	return m, nil
}

// check reports a marker that is not want's, or whose files, with that log store, are
// not all there.
func (m marker) check(dir string, want marker, store logStore) error {
	switch {
	case m.Format == 1:
		return identity.Refused("the data directory %s was written by an early version (format 1), which did not record what tells this directory from an empty one that took its place. "+
			"This version cannot use it: read the files with the version that wrote them, and bootstrap a new cell in empty directories", dir)
	case m.Format != want.Format:
		return identity.Refuse(dataError(dir, nil, "it was written in format %d, this version reads %d: use the version that wrote it", m.Format, want.Format))
	case m.Cell != want.Cell:
		e := dataError(dir, nil, "it belongs to cell %q, not %q: name another directory", m.Cell, want.Cell)
		e.Code, e.Cell = api.WrongCell, m.Cell
		return identity.Refuse(e)
	case m.ID != want.ID:
		return identity.Refuse(dataError(dir, nil, "it belongs to replica %q, not %q: name another directory; an ID cannot be changed, for votes were given under it", m.ID, want.ID))
	case m.LogStore != want.LogStore:
		return identity.Refuse(dataError(dir, nil, "its log is kept in %q, not %q: set log-store back", m.LogStore, want.LogStore))
	}
	for _, name := range []string{votesName, store.file, snapshotsName} {
		switch _, err := os.Stat(filepath.Join(dir, name)); {
		case err == nil:
		case denied(err):
			return dataError(filepath.Join(dir, name), err, "it cannot be looked at")
		default:
			return damaged(filepath.Join(dir, name), err, "it is missing, though this replica has run here. Without it the replica would break promises it gave: bring it back. If it is lost")
		}
	}
	return nil
}

// writeMarker makes the directory that replica's.
func writeMarker(dir string, m marker) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(dir, markerName), append(text, '\n'))
}

// writeDurably gives a file new contents. After a crash it has the old ones or
// the new ones.
func writeDurably(path string, text []byte) error {
	f, err := os.OpenFile(path+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return dataError(path, err, "it cannot be made")
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return dataError(path, err, "it cannot be written")
	}
	return moveIntoPlace(path)
}

// moveIntoPlace gives path+newSuffix its name, for good.
func moveIntoPlace(path string) error {
	if err := os.Rename(path+newSuffix, path); err != nil {
		return dataError(path, err, "it cannot be renamed into place")
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return dataError(dir, err, "the directory cannot be synced")
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return dataError(dir, err, "the directory cannot be synced")
	}
	return nil
}

// sweepSnapshots removes what interrupted snapshots have left behind.
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
// not removed since, or 0. A damaged one counts. It fails if this process may not read
// a snapshot's metadata; raft.FileSnapshotStore would skip that one as damaged.
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
		if _, err := os.ReadFile(filepath.Join(snapshots, e.Name(), metaName)); denied(err) {
			return 0, dataError(filepath.Join(snapshots, e.Name()), err, "the metadata of a snapshot cannot be read")
		}
	}
	return newest, nil
}
