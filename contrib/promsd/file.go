package promsd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// newFileMode is the mode of a file that did not exist: Prometheus is another user. A file that exists
// keeps its mode.
const newFileMode fs.FileMode = 0o644

// replaceFile gives a file these contents, unless it has them. It reports whether it has written. A
// reader sees the contents before or the new ones, each whole, also after a crash of the machine.
func replaceFile(path string, text []byte) (written bool, err error) {
	mode := newFileMode
	info, err := os.Stat(path)
	switch {
	case err == nil:
		mode = info.Mode().Perm()
		if same, err := holds(path, info, text); same || err != nil {
			return false, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("look at the file: %w", err)
	}
	dir := filepath.Dir(path)
	temporary, err := os.CreateTemp(dir, temporaryPrefix(path)+"*"+temporarySuffix)
	if err != nil {
		return false, fmt.Errorf("create a temporary file: %w", err)
	}
	if err := fill(temporary, text, mode); err != nil {
		return false, errors.Join(fmt.Errorf("write the temporary file: %w", err), os.Remove(temporary.Name()))
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return false, errors.Join(fmt.Errorf("put the file in its place: %w", err), os.Remove(temporary.Name()))
	}
	return true, syncDirectory(dir)
}

// holds reports whether a file has these contents.
func holds(path string, info fs.FileInfo, text []byte) (bool, error) {
	if info.Size() != int64(len(text)) {
		return false, nil
	}
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the file: %w", err)
	}
	return bytes.Equal(have, text), nil
}

// fill writes, syncs and closes a file.
func fill(file *os.File, text []byte, mode fs.FileMode) error {
	_, err := file.Write(text)
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// Temporary files have names that match no pattern of Prometheus for files to read.
const temporarySuffix = ".tmp"

func temporaryPrefix(path string) string { return "." + filepath.Base(path) + "." }

// removeTemporaries removes what a run that was killed has left of a file.
func removeTemporaries(path string) error {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	faults := []error{err}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), temporaryPrefix(path)) && strings.HasSuffix(e.Name(), temporarySuffix) {
			faults = append(faults, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(faults...)
}
