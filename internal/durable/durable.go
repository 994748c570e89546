package durable

import (
	"errors"
	"io"
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

// steadyBytes is how much a SteadyWriter leaves to be synced at most.
const steadyBytes = 4 << 20

// SteadyWriter writes a large file, and syncs it again and again. One sync at the end of a gigabyte would take seconds, and
// most file systems have syncs of all other files wait for it: a log on the same disk could store nothing meanwhile. It is for one
// goroutine.
type SteadyWriter struct {
	to       io.Writer
	sync     func() error
	unsynced int
}

// NewSteadyWriter returns a writer to a file. sync syncs what was written to it; the caller still does it, once, at the end.
func NewSteadyWriter(to io.Writer, sync func() error) *SteadyWriter {
	return &SteadyWriter{to: to, sync: sync}
}

// Write implements io.Writer.
func (s *SteadyWriter) Write(p []byte) (int, error) {
	for done := 0; ; {
		n, err := s.to.Write(p[done:min(len(p), done+steadyBytes-s.unsynced)])
		done += n
		s.unsynced += n
		if err == nil && s.unsynced == steadyBytes {
			s.unsynced = 0
			err = s.sync()
		}
		if err != nil || done == len(p) {
			return done, err
		}
	}
}
