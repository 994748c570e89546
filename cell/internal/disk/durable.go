package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chubbylock/chubby/internal/durable"
)

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
