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
	wal "github.com/hashicorp/raft-wal"
	"golang.org/x/sys/unix"
)

const (
	// lowDisk is how much room on its disk a replica wants: a few segments of the
	// log, and a snapshot beside the one before.
	lowDisk = 1 << 30

	diskPause   = 10 * time.Second // between two looks at the disk
	diskWarning = 10 * time.Minute // between two lines about a disk that is nearly full
)

// Free returns the bytes that are free where dir is, -1 if that is unknown.
func Free(dir string) int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return -1
	}
	return int64(fs.Bavail) * int64(fs.Bsize) //nolint:unconvert // of other types on other systems
}

// Space is the room on the disk of a data directory. It is for any goroutine.
type Space struct {
	dir    string
	clock  session.Clock
	logger *slog.Logger
	free   atomic.Int64 // bytes, as watch saw it last; -1 if that is unknown
}

// NewSpace returns the room where dir is, at which nobody has looked yet.
func NewSpace(dir string, clock session.Clock, logger *slog.Logger) *Space {
	s := &Space{dir: dir, clock: clock, logger: logger}
	s.free.Store(-1)
	return s
}

// Seen returns the bytes that were free when watch looked last, -1 if that is unknown.
func (s *Space) Seen() int64 { return s.free.Load() }

// Watch looks at the room on the disk until ctx ends, and warns while there is
// little: a replica whose disk is full ends.
func (s *Space) Watch(ctx context.Context) {
	look := time.NewTicker(diskPause)
	defer look.Stop()
	warned := s.clock().Add(-diskWarning)
	for {
		free := Free(s.dir)
		s.free.Store(free)
		if now := s.clock(); free >= 0 && free < lowDisk && now.Sub(warned) >= diskWarning {
			warned = now
			s.logger.Warn("the disk is nearly full: this replica stops when it is; make room, or extend it", "data", s.dir, "free", mebibytes(free), "wanted", mebibytes(lowDisk))
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// Note is what /readyz says of a disk that is nearly full, else nothing.
func (s *Space) Note() string {
	if free := s.free.Load(); free >= 0 && free < lowDisk {
		return fmt.Sprintf("the disk of %s is nearly full: %s are free, less than %s", s.dir, mebibytes(free), mebibytes(lowDisk))
	}
	return ""
}

// ExplainFull says of an error for want of room on the disk that it is one, how
// much there is, and how much a start needs.
func ExplainFull(dir string, err error) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	free := Free(dir)
	return dataError(dir, err, "the disk is full: %s are free, and a start needs %s for a segment of the log, and then some for snapshots; make room, and start the replica again: it catches up by itself",
		mebibytes(free), mebibytes(int64(wal.DefaultSegmentSize)))
}

// mebibytes shows a number of bytes to people.
func mebibytes(n int64) string {
	if n < 0 {
		return "an unknown number of bytes"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
