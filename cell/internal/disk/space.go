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
	// minFree is how many bytes a replica wants free on its disk: for a few segments
	// of the log, and for a snapshot beside the one before.
	minFree = 1 << 30

	freeEvery        = 10 * time.Second // between two checks of the disk
	freeWarningEvery = 10 * time.Minute // between two lines about a disk that is nearly full
)

// Space is the room on the disk of a data directory. It is for any goroutine.
type Space struct {
	dir    string
	clock  session.Clock
	logger *slog.Logger
	free   atomic.Int64 // bytes at the last check; -1 if that is unknown
}

// NewSpace returns the room on the disk of dir, which has not been checked yet.
func NewSpace(dir string, clock session.Clock, logger *slog.Logger) *Space {
	s := &Space{dir: dir, clock: clock, logger: logger}
	s.free.Store(-1)
	return s
}

// Seen returns the bytes that were free at the last check of Watch, -1 if that is unknown.
func (s *Space) Seen() int64 { return s.free.Load() }

// Watch checks the room on the disk regularly until ctx ends, and warns while there is
// little: a full disk ends the replica.
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

// Note is what /readyz says of a disk that is nearly full, "" otherwise. Which directory it is stands in the log, which
// not everybody may read.
func (s *Space) Note() string {
	//mutant: if free := s.free.Load(); free < 0 {
	if free := s.free.Load(); free >= 0 && free < minFree {
		return fmt.Sprintf("the disk of the data directory (data) is nearly full: %s are free, less than %s", mebibytes(free), mebibytes(minFree))
	}
	return ""
}

// ExplainFull adds to an error for lack of room on the disk how much is free, and how
// much a start needs. Other errors it returns as they are.
func ExplainFull(dir string, err error) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	free := Free(dir)
	return dataError(dir, err, "the disk is full: %s are free, and a start needs %s for a segment of the log, and then some for snapshots; make room, and start the replica again: it catches up by itself",
		mebibytes(free), mebibytes(int64(walSegment())))
}

// mebibytes formats a number of bytes for people.
func mebibytes(n int64) string {
	if n < 0 {
		return "an unknown number of bytes"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
