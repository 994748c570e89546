package disk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"github.com/hashicorp/raft"
)

// notedLog is a log that notes its end in another file.
//
// raft-wal takes damage at the end of its newest segment for an interrupted append, and drops it. bbolt does
// the same with its newest transaction, if its first page is damaged. So one flipped bit could silently lose
// the last confirmed entries, and an old copy everything after it. Such a replica may help to elect a leader
// that never had them.
//
// The note is written after the append is durable, so a log that ends before its note has lost something,
// unless a snapshot covers that. The note of an append is not synced: after a power failure it may be old,
// which hides damage but never invents any. Before the end of the log is deleted, the note is synced, so that
// it never claims deleted entries.
type notedLog struct {
	logFiles
	note *os.File
}

type logFiles interface {
	raft.LogStore
	io.Closer
}

// openNotedLog checks a log against its note, and closes it on failure. It calls covered only if the log lacks
// entries, for the index up to which a snapshot has them.
func openNotedLog(logs logFiles, path string, covered func() uint64) (*notedLog, error) {
	note, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errors.Join(dataError(path, err, "the note of the log's end cannot be opened"), logs.Close())
	}
	n := &notedLog{logFiles: logs, note: note}
	if err := n.check(path, covered); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *notedLog) check(path string, covered func() uint64) error {
	last, err := n.LastIndex()
	if err != nil {
		return dataError(path, err, "the log's end cannot be read")
	}
	//mutant: if noted, ok := n.read(); ok && last < noted && covered() > noted {
	if noted, ok := n.read(); ok && last < noted && covered() < noted {
		return damaged(path, nil, "the log ends at entry %d, and entry %d had been confirmed", last, noted)
	}
	if err := n.write(last); err != nil {
		return dataError(path, err, "the note of the log's end cannot be written")
	}
	return nil
}

// read returns the note; ok is false if it is incomplete or damaged.
func (n *notedLog) read() (last uint64, ok bool) {
	var b [12]byte
	if _, err := n.note.ReadAt(b[:], 0); err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint32(b[8:]) == crc32.ChecksumIEEE(b[:8])
}

func (n *notedLog) write(last uint64) error {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 12), last)
	_, err := n.note.WriteAt(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)), 0)
	return err
}

func (n *notedLog) StoreLog(log *raft.Log) error { return n.StoreLogs([]*raft.Log{log}) }

func (n *notedLog) StoreLogs(logs []*raft.Log) error {
	if err := n.logFiles.StoreLogs(logs); err != nil || len(logs) == 0 {
		return err
	}
	return n.write(logs[len(logs)-1].Index)
}

// DeleteRange implements raft.LogStore. If it empties the log, a snapshot covers everything before, as check considers.
func (n *notedLog) DeleteRange(first, last uint64) error {
	end, err := n.LastIndex()
	if err != nil {
		return err
	}
	//mutant: if last >= end { defer func() { _ = n.write(first - 1) }() } else if false {
	if last >= end { // else the end stays
		if err := n.write(first - 1); err != nil {
			return err
		}
		if err := n.note.Sync(); err != nil {
			return err
		}
	}
	return n.logFiles.DeleteRange(first, last)
}

func (n *notedLog) Close() error { return errors.Join(n.logFiles.Close(), n.note.Close()) }
