package disk

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/chubbylock/chubby/cell/internal/identity"
)

// commitMark is how far this replica knows its log to be committed, which means
// that clients may have been answered. Raft itself forgets that with every
// restart, and then replaces committed entries by those of a leader that never
// had them without a word: a leader elected by replicas that lost their data. So
// each entry is stored with the mark at that time, and the log keeps what is at or
// below the mark (guardedLogs.DeleteRange).
//
// It is for any goroutine. A nil mark knows nothing, and protects nothing.
type commitMark struct {
	stored atomic.Uint64                 // the highest that was found with an entry when the log was opened
	live   atomic.Pointer[func() uint64] // Raft's own, since it runs

	mu     sync.Mutex // guards what follows
	newest covered    // by the newest complete snapshot
	before covered    // by the one before that
	latest covered    // by the one completed last, which may be older
}

// covered is the last entry that a snapshot covers.
type covered struct{ index, term uint64 }

// index returns the mark.
func (c *commitMark) index() uint64 {
	if c == nil {
		return 0
	}
	mark := max(c.stored.Load(), c.snapshot())
	if live := c.live.Load(); live != nil {
		mark = max(mark, (*live)())
	}
	return mark
}

// found notes the mark that an entry was stored with.
func (c *commitMark) found(index uint64) { c.stored.Store(max(c.stored.Load(), index)) }

// snapshotted notes a complete snapshot. What it covers may leave the log.
func (c *commitMark) snapshotted(index, term uint64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = covered{index: index, term: term}
	if index > c.newest.index {
		c.before = c.newest
	}
	if index >= c.newest.index {
		c.newest = c.latest
	}
}

// snapshots returns what the newest complete snapshot covers, and the one completed last.
func (c *commitMark) snapshots() (newest, latest covered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest, c.latest
}

// snapshot returns the index of the newest complete snapshot.
func (c *commitMark) snapshot() uint64 {
	if c == nil {
		return 0
	}
	newest, _ := c.snapshots()
	return newest.index
}

// surplus returns up to where the oldest entries of a log may be deleted behind a
// snapshot of this replica's: the log reaches back to the one before the newest.
func (c *commitMark) surplus() uint64 {
	if c == nil {
		return math.MaxUint64
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.before.index
}

// follow makes the mark follow Raft's.
func (c *commitMark) follow(live func() uint64) { c.live.Store(&live) }

// errStartAgain is in the chain of every error of a replica that cannot go on, and
// can when it is started again.
var errStartAgain = errors.New("the replica has to be started again")

// deletable decides whether entries first to last may be deleted from a log that
// begins at begin.
func (c *commitMark) deletable(begin, first, last uint64) error {
	if c == nil {
		return nil
	}
	mark, snapshot := c.index(), c.snapshot()
	switch replaced := first > begin || begin > snapshot; { // what a snapshot has overtaken begins in it
	case replaced && first <= mark:
		return identity.Refused("the master wants log entries %d to %d replaced, and those up to %d were committed: clients were told that they are done. "+
			"The master must have been elected by replicas that lost their data. This replica stops and keeps what it has. "+
			"Stop the other replicas, too, before more is lost, and keep every data directory for analysis: this one holds what the master lacks", first, last, min(last, mark))
	case !replaced && min(last, mark) > snapshot:
		return fmt.Errorf("log entries %d to %d are to be deleted, and those above %d, which are committed up to %d, are in no snapshot: an old snapshot arrived late, and nothing was deleted: %w",
			first, last, snapshot, mark, errStartAgain)
	}
	return nil
}

// outlived is the error of a replica that has deleted entries first to last, its whole
// log, for a snapshot of the master's, if the last of them, of that term, is behind its
// newest snapshot, or in the place of the last entry that this covers, and another one.
// Raft believes until its next start that it is still there, and takes no entry of the
// master's, for it finds none that follows.
func (c *commitMark) outlived(begin, first, last, term uint64) error {
	if c == nil || first > begin {
		return nil // of the master's other entries, which are stored now
	}
	newest, _ := c.snapshots()
	if newest.index == 0 || last < newest.index || last == newest.index && term == newest.term {
		return nil
	}
	return fmt.Errorf("log entries %d to %d, of which the master does not have the last, were deleted for a snapshot of its: %w", first, last, errStartAgain)
}

// follows reports an entry that is the first to be stored in an empty log, and leaves
// out some between it and the snapshot that Raft goes on from. Raft believes until its
// next start in a log that it has emptied, and matches the master's entries with that: an
// old snapshot that arrived late has then taken it back further than it knows, and it
// would panic over those in between. They are in the newest snapshot.
func (c *commitMark) follows(index uint64) error {
	if c == nil {
		return nil
	}
	_, latest := c.snapshots()
	if index <= latest.index+1 {
		return nil
	}
	return fmt.Errorf("log entry %d does not follow the snapshot of entry %d, and the log is empty: an old snapshot arrived late: %w", index, latest.index, errStartAgain)
}
