package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/session"
)

const (
	// minFree is how many bytes should be free: for a few segments of the log, and a second snapshot.
	minFree = 1 << 30

	freeEvery        = 10 * time.Second // between two checks
	freeWarningEvery = 10 * time.Minute // between two warnings
)

// Space is the free space on a data directory's disk. It is safe for concurrent use.
type Space struct {
	dir    string
	clock  session.Clock
	logger *slog.Logger
	free   atomic.Int64 // bytes at the last check; -1 if unknown
}

// NewSpace returns the space on the disk of dir, not yet checked.
func NewSpace(dir string, clock session.Clock, logger *slog.Logger) *Space {
	s := &Space{dir: dir, clock: clock, logger: logger}
	s.free.Store(-1)
	return s
}

// Seen returns the free bytes at the last check of Watch, -1 if unknown.
func (s *Space) Seen() int64 { return s.free.Load() }

// Watch checks the space regularly until ctx ends, and warns if there is little: a full disk ends the replica.
func (s *Space) Watch(ctx context.Context) {
	look := time.NewTicker(freeEvery)
	defer look.Stop()
	warned := s.clock().Add(-freeWarningEvery)
	for {
		free := Free(s.dir)
		s.free.Store(free)
		if now := s.clock(); free >= 0 && free < minFree && now.Sub(warned) >= freeWarningEvery {
			warned = now
			s.logger.Warn("the disk is nearly full: this replica stops when it is; make room, or extend it", "event", "disk_nearly_full", "data", s.dir, "free", mebibytes(free), "wanted", mebibytes(minFree))
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// Note returns the text of /readyz for a nearly full disk, "" otherwise. It omits the directory, which only
// readers of the log may know.
func (s *Space) Note() string {
	//mutant: if free := s.free.Load(); free < 0 {
	if free := s.free.Load(); free >= 0 && free < minFree {
		return fmt.Sprintf("the disk of the data directory (data) is nearly full: %s are free, less than %s", mebibytes(free), mebibytes(minFree))
	}
	return ""
}

// ExplainFull adds to an error of a full disk the free space and the needs of a start. It returns other errors unchanged.
func ExplainFull(dir string, err error) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	free := Free(dir)
	return dataError(dir, err, "the disk is full: %s are free, and a start needs %s for a segment of the log, and then some for snapshots; make room, and start the replica again: it catches up by itself",
		mebibytes(free), mebibytes(int64(walSegment())))
}

func mebibytes(n int64) string {
	if n < 0 {
		return "an unknown number of bytes"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
