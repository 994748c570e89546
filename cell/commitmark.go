package cell

import "sync/atomic"

// commitMark is how far this replica knows its log to be committed, which means
// that clients may have been answered. Raft itself forgets that with every
// restart, and then replaces committed entries by those of a leader that never
// had them without a word: a leader elected by replicas that lost their data. So
// each entry is stored with the mark at that time, and the log keeps what is at or
// below the mark (guardedLogs.DeleteRange).
//
// It is for any goroutine. A nil mark knows nothing, and protects nothing.
type commitMark struct {
	stored   atomic.Uint64                 // the highest that was found with an entry when the log was opened
	snapshot atomic.Uint64                 // the index of the newest complete snapshot
	live     atomic.Pointer[func() uint64] // Raft's own, since it runs
}

// index returns the mark.
func (c *commitMark) index() uint64 {
	if c == nil {
		return 0
	}
	mark := max(c.stored.Load(), c.snapshot.Load())
	if live := c.live.Load(); live != nil {
		mark = max(mark, (*live)())
	}
	return mark
}

// found notes the mark that an entry was stored with.
func (c *commitMark) found(index uint64) { c.stored.Store(max(c.stored.Load(), index)) }

// snapshotted notes a complete snapshot. What it covers may leave the log.
func (c *commitMark) snapshotted(index uint64) {
	if c != nil {
		c.snapshot.Store(max(c.snapshot.Load(), index))
	}
}

// follow makes the mark follow Raft's.
func (c *commitMark) follow(live func() uint64) { c.live.Store(&live) }

// deletable decides whether entries first to last may be deleted from a log that
// begins at begin.
func (c *commitMark) deletable(begin, first, last uint64) error {
	if c == nil {
		return nil
	}
	mark, snapshot := c.index(), c.snapshot.Load()
	switch replaced := first > begin || begin > snapshot; { // what a snapshot has overtaken begins in it
	case replaced && first <= mark:
		return refused("the master wants log entries %d to %d replaced, and those up to %d were committed: clients were told that they are done. "+
			"The master must have been elected by replicas that lost their data. This replica stops and keeps what it has. "+
			"Stop the other replicas, too, before more is lost, and keep every data directory for analysis: this one holds what the master lacks", first, last, min(last, mark))
	case !replaced && min(last, mark) > snapshot:
		return refused("log entries %d to %d are to be deleted, and those above %d, which are committed up to %d, are in no snapshot: an old snapshot arrived late. "+
			"Nothing was deleted: start this replica again", first, last, snapshot, mark)
	}
	return nil
}
