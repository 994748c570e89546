package disk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"github.com/chubbylock/chubby/api"
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

// sealSize is the bytes added to an entry's Extensions: the mark, the checksum.
const sealSize = 8 + crc32.Size

// readLog reads an entry and checks that it was written there.
func readLog(store raft.LogStore, index uint64, log *raft.Log) error {
	_, err := readMarked(store, index, log)
	return err
}

// readMarked is readLog, and returns the entry's commit mark.
func readMarked(store raft.LogStore, index uint64, log *raft.Log) (mark uint64, err error) {
	if err := store.GetLog(index, log); err != nil {
		return 0, err
	}
	own := len(log.Extensions) - sealSize
	if own < 0 {
		return 0, api.Errorf(api.Corrupt, "log entry %d has no checksum", index)
	}
	mark = binary.BigEndian.Uint64(log.Extensions[own:])
	sum := binary.BigEndian.Uint32(log.Extensions[own+8:])
	log.Extensions = log.Extensions[:own+8]
	if log.Index != index {
		return 0, api.Errorf(api.Corrupt, "entry %d is stored where log entry %d belongs", log.Index, index)
	}
	if logSum(log) != sum {
		return 0, api.Errorf(api.Corrupt, "log entry %d fails its checksum", index)
	}
	log.Extensions = log.Extensions[:own:own]
	if own == 0 {
		log.Extensions = nil // as Raft wrote it
	}
	return mark, nil
}

// logSum returns the checksum of an entry without one.
func logSum(log *raft.Log) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	head := make([]byte, 0, 25)
	head = binary.BigEndian.AppendUint64(head, log.Index)
	head = binary.BigEndian.AppendUint64(head, log.Term)
	head = append(head, byte(log.Type))
	head = binary.BigEndian.AppendUint64(head, uint64(len(log.Data)))
	return crc32.Update(crc32.Update(crc32.Checksum(head, table), table, log.Data), table, log.Extensions)
}
