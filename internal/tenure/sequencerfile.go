package tenure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/durable"
	"github.com/chubbylock/chubby/sequencer"
)

// FileError is an unusable sequencer file: the user has to name another one.
type FileError string

// Error returns the reason.
func (e FileError) Error() string { return string(e) }

func unfit(format string, args ...any) error { return FileError(fmt.Sprintf(format, args...)) }

// CheckSequencerFile rejects an invalid file name, and a file that must not be replaced. An empty name means no
// file.
func CheckSequencerFile(name string) error {
	if name == "" {
		return nil
	}
	switch info, err := os.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		if dir, err := os.Stat(filepath.Dir(name)); err != nil || !dir.IsDir() {
			return unfit("--sequencer-file %s: there is no directory %s", name, filepath.Dir(name))
		}
	case err != nil:
		return unfit("--sequencer-file: %v", err)
	case !info.Mode().IsRegular():
		return unfit("--sequencer-file %s is no ordinary file, and would be replaced and removed; name one of its own", name)
	case info.Size() > 0 && !holdsSequencer(name, info.Size()):
		return unfit("--sequencer-file %s holds something else than a sequencer, "+
			"and would be replaced and removed; name one of its own", name)
	}
	return nil
}

// holdsSequencer reports whether a file holds a sequencer: a killed chubbyctl leaves its file.
func holdsSequencer(name string, size int64) bool {
	const maxSize = 4 * api.MaxPath // more than any sequencer has
	if size > maxSize {
		return false
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	_, err = sequencer.Parse(strings.TrimSpace(string(text)))
	return err == nil
}

// KeepSequencer keeps a lock's sequencer in a file, for programs without CMD's environment; without a name it
// does nothing. forget removes the file, as does, at once, the end of held, the lock's context. The next
// chubbyctl replaces the file of a killed one. Holders of a shared lock have the same sequencer and need a file
// each, so the file stays locked (flock).
func KeepSequencer(held context.Context, name, sequencer string, warn func(text string)) (forget func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	// The name was checked before the wait for the lock.
	if err := CheckSequencerFile(name); err != nil {
		return nil, err
	}
	own := sequencer + "\n"
	if isKeptByAnother(name, own) {
		return nil, unfit("--sequencer-file %s is kept by another chubbyctl, which shares the lock; name another file", name)
	}
	kept, err := replaceFile(name, own)
	if err != nil {
		return nil, fmt.Errorf("--sequencer-file: %w", err)
	}
	var once sync.Once
	remove := func() {
		once.Do(func() {
			// The next holder may be on this machine, with its own sequencer in the file.
			text, err := os.ReadFile(name)
			if err == nil && string(text) == own {
				err = os.Remove(name)
			}
			_ = kept.Close() // the write synced it
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				warn(fmt.Sprintf("the sequencer file, which says nothing any more, is still there: %v", err))
			}
		})
	}
	stop := context.AfterFunc(held, remove)
	return func() {
		stop()
		remove()
	}, nil
}

// isKeptByAnother reports whether a file has that text, and another chubbyctl has locked it. A leftover file is
// not locked; without flock(2), none is.
func isKeptByAnother(name, text string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	has := make([]byte, len(text)+1)
	n, err := io.ReadFull(f, has)
	return errors.Is(err, io.ErrUnexpectedEOF) && string(has[:n]) == text && durable.IsLocked(f)
}

// replaceFile replaces a file's contents, and returns it open and locked. Readers find the old contents or the
// new ones.
func replaceFile(name, text string) (io.Closer, error) {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync()) // after Sync, Close has no error to report
	if durable.Lock(f) != nil {                      // without flock(2), the system may not rename an open file
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = f.Close() // if it is still open
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return f, nil
}
