package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	wal "github.com/hashicorp/raft-wal"
)

// WALStore is segments, with one sync for each write.
const WALStore LogStore = "wal"

// The directory of raft-wal's log in the data directory, and its file that lists the segments.
const (
	walLogName  = "log"
	walMetaName = "wal-meta.db"
)

func walSegment() int { return wal.DefaultSegmentSize }

func walDamage() []error { return []error{wal.ErrCorrupt} }

func openWAL(path string, opts logOptions) (logFiles, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, dataError(path, err, "the log's directory cannot be made")
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	size := opts.segmentSize
	if size == 0 {
		size = walSegment()
	}
	if err := reopenWALTail(path, size); err != nil {
		return nil, walError(path, err, "the log cannot be recovered")
	}
	logs, err := wal.Open(path, wal.WithLogger(opts.logger), wal.WithSegmentSize(size))
	if err != nil {
		return nil, walError(path, err, "the log cannot be opened")
	}
	return logs, nil
}

// walError is an error of raft-wal at the start. It means damage, unless the system denied access: raft-wal has
// no sentinel error for missing or contradictory data.
func walError(path string, err error, what string) error {
	//mutant: if isDenied(err) || err != nil {
	if isDenied(err) {
		return dataError(path, err, "%s", what)
	}
	return damaged(path, err, "%s", what)
}
