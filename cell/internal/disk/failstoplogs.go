package disk

import (
	"cmp"
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/raft"
)

// MaxLogEntry is the largest entry that a replica writes into its log: the last
// line of defence, for what is larger could not be read again. raft-wal writes
// entries of any size, and takes one above 64 MiB for damage when it reads it. An
// entry of this version is far smaller (api.MaxCommand); no entry is refused that
// an earlier version wrote and could read.
const MaxLogEntry = 16 << 20

// guardedLogs is the Raft log: guarded, and with a checksum in each entry.
//
// The commit mark and the checksum (CRC32C over index, term, type, data,
// extensions and mark) are appended to an entry's Extensions when it is written and
// taken off when it is read, so that neither Raft nor a peer ever sees them. Neither store checks what it reads
// itself; without this, one flipped bit would be applied, or sent to the others.
type guardedLogs struct {
	inner raft.LogStore
	guard *storeGuard
	path  string
	limit int // bytes of one entry; 0 is maxLogEntry
	mark  *commitMark

	rotten func(index uint64, err error) // told of an entry that a snapshot makes up for; may be nil
	told   atomic.Uint64                 // the entry that rotten was told of last
}

var (
	_ raft.LogStore          = (*guardedLogs)(nil)
	_ raft.MonotonicLogStore = (*guardedLogs)(nil)
)

// IsMonotonic makes Raft empty the log when it has installed a snapshot of the
// leader's, whatever the inner store can do. raft-wal takes no gaps. In bbolt's log
// Raft would leave the newest entries from before the gap, which may be of a deposed
// master and never have been committed; this replica, once elected, would send them
// to one that is further behind, as if they had been.
func (l *guardedLogs) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore.
func (l *guardedLogs) FirstIndex() (index uint64, err error) {
	err = l.guard.must(storeOp{verb: "find the first entry", path: l.path}, nil, func() error {
		index, err = l.inner.FirstIndex()
		return err
	})
	return index, err
}

// LastIndex implements raft.LogStore.
func (l *guardedLogs) LastIndex() (index uint64, err error) {
	err = l.guard.must(storeOp{verb: "find the last entry", path: l.path}, nil, func() error {
		index, err = l.inner.LastIndex()
		return err
	})
	return index, err
}

// GetLog implements raft.LogStore. It fails with raft.ErrLogNotFound, also for an entry
// that has rotted and that the newest snapshot covers: nobody needs it, and a master sends
// the snapshot instead. Raft reads the oldest entry of a master every ten seconds, too, to
// measure its age.
func (l *guardedLogs) GetLog(index uint64, log *raft.Log) error {
	op := storeOp{verb: "read", from: index, to: index, path: l.path}
	return l.guard.must(op, raft.ErrLogNotFound, func() error {
		err := readLog(l.inner, index, log)
		if err != nil && !denied(err) && index <= l.mark.snapshot() {
			l.tell(index, err)
			return raft.ErrLogNotFound
		}
		return err
	})
}

// tell tells of a rotten entry, once however often it is read.
func (l *guardedLogs) tell(index uint64, err error) {
	if !errors.Is(err, raft.ErrLogNotFound) && l.rotten != nil && l.told.Swap(index) != index {
		l.rotten(index, err)
	}
}

// StoreLog implements raft.LogStore.
func (l *guardedLogs) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. It does not change the caller's entries,
// which raft.LogCache keeps. Of a batch with an entry that could not be read again
// it writes nothing: that ends the replica, as every error does, but it can start
// again, and the entry is not committed by its vote. The proposer sees to it that
// this never happens (limits).
func (l *guardedLogs) StoreLogs(logs []*raft.Log) error {
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
	return l.guard.must(op, nil, func() error {
		if err := l.tooLarge(sealed); err != nil {
			return err
		}
		last, err := l.inner.LastIndex()
		if err == nil && last == 0 {
			err = l.mark.follows(sealed[0].Index)
		}
		if err != nil {
			return err
		}
		return l.inner.StoreLogs(sealed)
	})
}

// tooLarge refuses entries that could not be read again.
func (l *guardedLogs) tooLarge(logs []*raft.Log) error {
	limit := cmp.Or(l.limit, MaxLogEntry)
	for _, log := range logs {
		if n := len(log.Data) + len(log.Extensions); n > limit {
			return api.Errorf(api.TooLarge, "log entry %d has %d bytes, and at most %d can be read again", log.Index, n, limit)
		}
	}
	return nil
}

// DeleteRange implements raft.LogStore. Raft deletes the oldest entries when they
// are in a snapshot, all entries when it has got a snapshot of the leader, and the
// newest ones when the leader has others. Entries that are known to be committed
// are deleted in the first way only; the wish to do so in another one ends the
// replica. The first is done on a goroutine of its own, and the second may come before
// it: then there is nothing left to delete. Of the oldest, those stay that follow the
// snapshot before the newest: should this one rot, they take its place.
func (l *guardedLogs) DeleteRange(first, last uint64) error {
	op := storeOp{verb: "delete", from: first, to: last, path: l.path}
	return l.guard.must(op, nil, func() error {
		begin, err := l.inner.FirstIndex()
		if err != nil || begin == 0 || last < begin {
			return err // nothing of it is there
		}
		if err := l.mark.deletable(begin, first, last); err != nil {
			return err
		}
		newest, err := l.inner.LastIndex()
		if err != nil {
			return err
		}
		if first <= begin && last < newest {
			last = min(last, l.mark.surplus())
		}
		if last < begin {
			return nil
		}
		var end raft.Log
		if err := readLog(l.inner, last, &end); err != nil {
			end.Term = 0 // it goes, whatever it was: of no term that Raft knows
		}
		if err := l.inner.DeleteRange(first, last); err != nil {
			return err
		}
		return l.mark.outlived(begin, first, last, end.Term)
	})
}
