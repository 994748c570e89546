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
	"github.com/chubbylock/chubby/internal/flock"
	"github.com/chubbylock/chubby/sequencer"
)

// FileError is a file for a sequencer that is not to be used: the user has to name another one.
type FileError string

// Error says why.
func (e FileError) Error() string { return string(e) }

func unfit(format string, args ...any) error { return FileError(fmt.Sprintf(format, args...)) }

// CheckSequencerFile refuses a name that cannot be a file's, and a file that must not be replaced. Without a name there is no file.
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

// holdsSequencer reports whether a file holds a sequencer: a chubbyctl that was killed leaves
// its file.
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

// KeepSequencer keeps the sequencer of a lock in a file, for programs that do not
// have CMD's environment; without a name it does nothing. forget removes the file; so does the end of held, the lock's
// context, at once. A chubbyctl that is killed leaves the file, and the next one replaces it.
// Holders who share a lock have the same sequencer, and need a file each, so the file is
// locked (flock) while it is kept.
func KeepSequencer(held context.Context, name, sequencer string, warn func(text string)) (forget func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	// The name was checked before the wait for the lock, which may have been long.
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
			// The next holder may be on this machine, and have written its own sequencer.
			text, err := os.ReadFile(name)
			if err == nil && string(text) == own {
				err = os.Remove(name)
			}
			_ = kept.Close() // it was synced when it was written
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

// isKeptByAnother reports whether a file has that text, and another chubbyctl has locked it. A
// file that was left is not locked; nor is any on a system without flock(2).
func isKeptByAnother(name, text string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	has := make([]byte, len(text)+1)
	n, err := io.ReadFull(f, has)
	return errors.Is(err, io.ErrUnexpectedEOF) && string(has[:n]) == text && flock.IsLocked(f)
}

// replaceFile gives a file new contents, and returns it open and locked. A reader finds the
// old contents or the new ones.
func replaceFile(name, text string) (io.Closer, error) {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync()) // after Sync, Close has no error to report
	if flock.Lock(f) != nil {                        // a system without flock(2) may not rename an open file
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
