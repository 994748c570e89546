package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
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

func openWAL(path string, opts Options) (logFiles, error) {
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
	logs, err := wal.Open(path, wal.WithLogger(opts.RaftLog), wal.WithSegmentSize(size))
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

// reopenWALTail makes the newest segment of a log in dir appendable, before wal.Open. A properly closed log
// stays unchanged.
//
// raft-wal (v0.4.2) seals a segment with the append that fills it, or with a truncation, and then notes that in
// its metadata. If it is killed in between, it opens the segment as the tail again, remembers that it has an
// index, and permanently rejects every append ("segment is sealed"). A torn index, left by a power loss, has
// the same effect. So the committed entries are copied to a new segment, which replaces the old one in one
// transaction. wal.Open deletes what is not in the metadata.
func reopenWALTail(dir string, segmentSize int) (err error) {
	if _, err := os.Stat(filepath.Join(dir, metadb.FileName)); errors.Is(err, fs.ErrNotExist) {
		return nil // a new log
	}
	meta := &metadb.BoltMetaDB{}
	state, err := meta.Load(dir)
	if err != nil {
		return fmt.Errorf("read the list of segments: %w", err)
	}
	defer func() { err = errors.Join(err, meta.Close()) }()
	if len(state.Segments) == 0 {
		return nil
	}
	tail := &state.Segments[len(state.Segments)-1]
	if !tail.SealTime.IsZero() {
		return nil
	}
	filer := segment.NewFiler(dir, walfs.New())
	entries, sealed, err := committedEntries(filer, *tail)
	if err != nil || !sealed {
		return err
	}
	tail.ID = state.NextSegmentID
	tail.BaseIndex = tail.MinIndex
	tail.SizeLimit += uint32(segmentSize) // else the copy would fill the segment and seal it
	state.NextSegmentID++
	if len(entries) > 0 { // else wal.Open creates the file
		if err := writeSegment(filer, *tail, entries); err != nil {
			return err
		}
	}
	if err := meta.CommitState(state); err != nil {
		return fmt.Errorf("replace the newest segment: %w", err)
	}
	return nil
}

// committedEntries returns the entries of a tail segment with an index, as raft-wal's recovery finds them;
// sealed is false without an index.
func committedEntries(filer *segment.Filer, tail types.SegmentInfo) (entries []types.LogEntry, sealed bool, err error) {
	w, err := filer.RecoverTail(tail)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil // wal.Open creates it
	}
	if err != nil {
		return nil, false, fmt.Errorf("recover the newest segment: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if sealed, _, err = w.Sealed(); err != nil || !sealed {
		return nil, false, err
	}
	for index := tail.MinIndex; index <= w.LastIndex(); index++ {
		buf, err := w.GetLog(index)
		if err != nil {
			return nil, false, fmt.Errorf("read entry %d of the newest segment: %w", index, err)
		}
		entries = append(entries, types.LogEntry{Index: index, Data: append([]byte{}, buf.Bs...)})
		if err := buf.Close(); err != nil {
			return nil, false, err
		}
	}
	return entries, true, nil
}

// writeSegment durably writes a segment with these entries. It replaces the remains of an earlier attempt.
func writeSegment(filer *segment.Filer, info types.SegmentInfo, entries []types.LogEntry) (err error) {
	if err := filer.Delete(info.BaseIndex, info.ID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the remains of a segment: %w", err)
	}
	w, err := filer.Create(info)
	if err != nil {
		return fmt.Errorf("make a segment: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.Append(entries); err != nil {
		return fmt.Errorf("copy entries to a segment: %w", err)
	}
	return nil
}
