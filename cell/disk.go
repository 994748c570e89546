package cell

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

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

// diskFree returns the bytes that are free where dir is, -1 if that is unknown.
func diskFree(dir string) int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return -1
	}
	return int64(fs.Bavail) * int64(fs.Bsize) //nolint:unconvert // of other types on other systems
}

// watchDisk looks at the room on the replica's disk until ctx ends, and warns
// while there is little: a replica whose disk is full ends.
func (r *Replica) watchDisk(ctx context.Context) {
	look := time.NewTicker(diskPause)
	defer look.Stop()
	warned := r.clock().Add(-diskWarning)
	for {
		free := diskFree(r.cfg.Data)
		r.free.Store(free)
		if now := r.clock(); free >= 0 && free < lowDisk && now.Sub(warned) >= diskWarning {
			warned = now
			r.log.Warn("the disk is nearly full: this replica stops when it is; make room, or extend it", "data", r.cfg.Data, "free", mebibytes(free), "wanted", mebibytes(lowDisk))
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// diskNote is what /readyz says of a disk that is nearly full, else nothing.
func (r *Replica) diskNote() string {
	if free := r.free.Load(); free >= 0 && free < lowDisk {
		return fmt.Sprintf("the disk of %s is nearly full: %s are free, less than %s", r.cfg.Data, mebibytes(free), mebibytes(lowDisk))
	}
	return ""
}

// explainFull says of an error for want of room on the disk that it is one, how
// much there is, and how much a start needs.
func explainFull(dir string, err error) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	free := diskFree(dir)
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
