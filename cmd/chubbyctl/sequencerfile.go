package main

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

// checkSequencerFile refuses what is no file of ours to replace, or cannot be one.
func checkSequencerFile(name string) error {
	if name == "" {
		return nil
	}
	switch info, err := os.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		if dir, err := os.Stat(filepath.Dir(name)); err != nil || !dir.IsDir() {
			return usagef("--sequencer-file %s: there is no directory %s", name, filepath.Dir(name))
		}
	case err != nil:
		return usagef("--sequencer-file: %v", err)
	case !info.Mode().IsRegular():
		return usagef("--sequencer-file %s is no ordinary file, and would be replaced and removed; name one of its own", name)
	case info.Size() > 0 && !holdsSequencer(name, info.Size()):
		return usagef("--sequencer-file %s holds something else than a sequencer, and would be replaced and removed; name one of its own", name)
	}
	return nil
}

// holdsSequencer reports whether a file holds a sequencer, as a chubbyctl that was
// killed leaves one.
func holdsSequencer(name string, size int64) bool {
	const most = 4 * api.MaxPath // bytes of one, with room
	if size > most {
		return false
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	_, err = sequencer.Parse(strings.TrimSpace(string(text)))
	return err == nil
}

// keepSequencer keeps the sequencer of a lock in --sequencer-file while held, the
// lock's context, lasts, for programs that CMD's environment does not reach. forget takes it away
// again, and the loss of the lock does at once. A chubbyctl that is killed leaves
// the file, for the next to take over. Those who share a lock have one sequencer, and a
// file each: while it is kept the file is claimed.
func (o *workOptions) keepSequencer(held context.Context, sequencer string) (forget func(), err error) {
	if o.sequencerFile == "" {
		return func() {}, nil
	}
	// The lock may have been waited for since the name was looked at.
	if err := checkSequencerFile(o.sequencerFile); err != nil {
		return nil, err
	}
	own := sequencer + "\n"
	if isKeptByAnother(o.sequencerFile, own) {
		return nil, usagef("--sequencer-file %s is kept by another chubbyctl, which shares the lock; name another file", o.sequencerFile)
	}
	kept, err := replaceFile(o.sequencerFile, own)
	if err != nil {
		return nil, fmt.Errorf("--sequencer-file: %w", err)
	}
	var once sync.Once
	remove := func() {
		once.Do(func() {
			// The next holder may be on this machine, and have written its own meanwhile.
			text, err := os.ReadFile(o.sequencerFile)
			if err == nil && string(text) == own {
				err = os.Remove(o.sequencerFile)
			}
			_ = kept.Close() // it was synced when it was written
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				o.notice(fmt.Sprintf("the sequencer file, which says nothing any more, is still there: %v", err))
			}
		})
	}
	stop := context.AfterFunc(held, remove)
	return func() {
		stop()
		remove()
	}, nil
}

// isKeptByAnother reports whether a file with that text is claimed: what a chubbyctl that was
// killed has left is not, nor is any where the system has no such claims.
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

// replaceFile writes a file so that whoever reads it sees all of it or what was
// there before. It is claimed until it is closed.
func replaceFile(name, text string) (io.Closer, error) {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync()) // after that, closing it has nothing to say
	if flock.Lock(f) != nil {                        // without claims, the system may not rename what is open
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = f.Close() // if it is open yet
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return f, nil
}
