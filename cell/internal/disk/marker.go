package disk

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
)

// marker names the replica of a directory. It is written once, after all other files of a new directory, so
// with it those must exist.
type marker struct {
	Format      int      `json:"format"`
	Cell        string   `json:"cell"`
	ID          string   `json:"id"`
	LogStore    LogStore `json:"log_store"`
	Incarnation string   `json:"incarnation"` // random; see package identity
}

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

// check rejects a marker that differs from want, or some of whose files, for that log store, are missing.
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
		//mutant: return e
		return identity.Refuse(e)
	case m.ID != want.ID:
		return identity.Refuse(dataError(dir, nil, "it belongs to replica %q, not %q: name another directory; an ID cannot be changed, for votes were given under it", m.ID, want.ID))
	case m.LogStore != want.LogStore:
		return identity.Refuse(dataError(dir, nil, "its log is kept in %q, not %q: set log-store back", m.LogStore, want.LogStore))
	}
	for _, name := range []string{votesName, store.file, snapshotsName} {
		switch _, err := os.Stat(filepath.Join(dir, name)); {
		case err == nil:
		case isDenied(err):
			return dataError(filepath.Join(dir, name), err, "it cannot be looked at")
		default:
			return damaged(filepath.Join(dir, name), err, "it is missing, though this replica has run here. Without it the replica would break promises it gave: bring it back. If it is lost")
		}
	}
	return nil
}

func writeMarker(dir string, m marker) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(dir, markerName), append(text, '\n'))
}
