package durable

import (
	"errors"
	"io/fs"
	"os"
)

// WriteFile creates a file, or replaces its contents, and syncs it. A crash in between leaves part
// of the contents. The file's name is durable only after SyncDir of its directory.
func WriteFile(name string, contents []byte, perm fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(contents)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
