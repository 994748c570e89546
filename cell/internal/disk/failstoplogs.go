package disk

import (
	"cmp"
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// MaxLogEntry is the largest entry, in bytes, that a replica writes into its log: a larger one could not be
// read again. raft-wal writes entries of any size, and reads those above 64 MiB as damage. Entries of this
// version are far smaller (api.MaxCommand), and every entry passes that an earlier version wrote and could read.
const MaxLogEntry = 16 << 20

// failStopLogs is the Raft log, with a fail-stop and a checksum in each entry.
//
// It adds the commit mark and the checksum (CRC32C over index, term, type, data, extensions and mark) to the
// Extensions of each entry that it writes, and removes them when it reads the entry. Neither Raft nor another
// replica sees them. Neither log store checks what it reads: one flipped bit would be applied, or sent to other replicas.
type failStopLogs struct {
	inner    raft.LogStore
	failStop *failStop
	path     string
	maxEntry int // bytes; 0 is MaxLogEntry
	mark     *commitMark
	clock    session.Clock  // for appended
	appended func(Appended) // called after each append; may be nil

	onDamaged    func(index uint64, err error) // called for a damaged entry that a snapshot covers; may be nil
	lastReported atomic.Uint64                 // the last entry for which onDamaged was called
}

var (
	_ raft.LogStore          = (*failStopLogs)(nil)
	_ raft.MonotonicLogStore = (*failStopLogs)(nil)
)

// IsMonotonic makes Raft empty the log after it has installed a leader's snapshot. raft-wal accepts no gaps. In
// bbolt's log, Raft would leave the newest entries from before the gap, perhaps a deposed master's and
// uncommitted. Once elected, this replica would send them to a replica further behind, as if committed.
func (l *failStopLogs) IsMonotonic() bool { return true }

func (l *failStopLogs) FirstIndex() (index uint64, err error) {
	err = l.failStop.attemptOrExit(storeOp{verb: "find the first entry", path: l.path}, nil, func() error {
		index, err = l.inner.FirstIndex()
		return err
	})
	return index, err
}

func (l *failStopLogs) LastIndex() (index uint64, err error) {
	err = l.failStop.attemptOrExit(storeOp{verb: "find the last entry", path: l.path}, nil, func() error {
		index, err = l.inner.LastIndex()
		return err
	})
	return index, err
}

// GetLog implements raft.LogStore. It also returns raft.ErrLogNotFound for a damaged entry that the newest
// snapshot covers: a master then sends the snapshot. Raft also reads a master's oldest entry every ten seconds,
// for its age.
func (l *failStopLogs) GetLog(index uint64, log *raft.Log) error {
	op := storeOp{verb: "read", from: index, to: index, path: l.path}
	return l.failStop.attemptOrExit(op, raft.ErrLogNotFound, func() error {
		err := readLog(l.inner, index, log)
		//mutant: if err != nil && !isDenied(err) && index == 0 {
		if err != nil && !isDenied(err) && index <= l.mark.snapshotIndex() {
			l.reportDamaged(index, err)
			return raft.ErrLogNotFound
		}
		return err
	})
}

func (l *failStopLogs) reportDamaged(index uint64, err error) {
	if !errors.Is(err, raft.ErrLogNotFound) && l.onDamaged != nil && l.lastReported.Swap(index) != index {
		l.onDamaged(index, err)
	}
}

func (l *failStopLogs) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. It leaves the caller's entries unchanged, which raft.LogCache keeps. If
// an entry could not be read again, it writes nothing of the batch. That ends the replica, but it can start
// again, and its vote does not commit the entry. The master's limits prevent such an entry.
func (l *failStopLogs) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	sealed, mark := make([]*raft.Log, len(logs)), l.mark.index()
	for i, log := range logs {
		entry := *log
		entry.Extensions = append(make([]byte, 0, len(log.Extensions)+sealSize), log.Extensions...)
		entry.Extensions = binary.BigEndian.AppendUint64(entry.Extensions, mark)
		entry.Extensions = binary.BigEndian.AppendUint32(entry.Extensions, logSum(&entry))
		sealed[i] = &entry
	}
	op := storeOp{verb: "append", from: logs[0].Index, to: logs[len(logs)-1].Index, path: l.path}
	var began session.Instant
	if l.appended != nil {
		began = l.clock()
	}
	err := l.failStop.attemptOrExit(op, nil, func() error {
		if err := l.checkSize(sealed); err != nil {
			return err
		}
		last, err := l.inner.LastIndex()
		if err == nil && last == 0 {
			err = l.mark.checkFirst(sealed[0].Index)
		}
		if err != nil {
			return err
		}
		return l.inner.StoreLogs(sealed)
	})
	if l.appended != nil {
		l.appended(Appended{First: op.from, Last: op.to, From: began, To: l.clock()})
	}
	return err
}

func (l *failStopLogs) checkSize(logs []*raft.Log) error {
	limit := cmp.Or(l.maxEntry, MaxLogEntry)
	for _, log := range logs {
		if n := len(log.Data) + len(log.Extensions); n > limit {
			return api.Errorf(api.TooLarge, "log entry %d has %d bytes, and at most %d can be read again", log.Index, n, limit)
		}
	}
	return nil
}

// DeleteRange implements raft.LogStore. Raft deletes the oldest entries when a snapshot has them, all entries
// when it has received a leader's snapshot, and the newest when the leader has others in their place. Committed
// entries may only be deleted in the first way; other requests end the replica.
//
// Raft deletes the oldest entries on a goroutine of its own, perhaps after it has deleted all. Of the oldest,
// those after the last snapshot but one stay in the log: they replace the newest snapshot if that is damaged.
func (l *failStopLogs) DeleteRange(first, last uint64) error {
	op := storeOp{verb: "delete", from: first, to: last, path: l.path}
	return l.failStop.attemptOrExit(op, nil, func() error {
		begin, err := l.inner.FirstIndex()
		//mutant: if err != nil {
		if err != nil || begin == 0 || last < begin {
			return err // there is no such entry
		}
		if err := l.mark.checkDelete(begin, first, last); err != nil {
			return err
		}
		newest, err := l.inner.LastIndex()
		if err != nil {
			return err
		}
		if first <= begin && last < newest {
			//mutant: last = min(last, l.mark.snapshotIndex())
			last = min(last, l.mark.lastSurplus())
		}
		if last < begin {
			return nil
		}
		var end raft.Log
		if err := readLog(l.inner, last, &end); err != nil {
			end.Term = 0 // the entry goes, even unreadable; Raft knows no term 0
		}
		if err := l.inner.DeleteRange(first, last); err != nil {
			return err
		}
		return l.mark.checkEmptied(begin, first, last, end.Term)
	})
}
