package disk

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/chubbylock/chubby/cell/internal/identity"
)

// commitMark is the index up to which this replica knows its log to be committed: clients may have answers for
// these entries. Raft forgets it at every restart. It would then silently replace committed entries by those of
// a leader that never had them (elected by replicas that lost their data). Version 0.1.0 could also set the
// mark too high, and apply too much: see capCommit in cell/internal/peer. So each entry is stored with the
// current mark, and the log keeps everything up to it (failStopLogs.DeleteRange).
//
// It is safe for concurrent use.
type commitMark struct {
	stored atomic.Uint64                 // the highest mark of an entry when the log was opened
	live   atomic.Pointer[func() uint64] // Raft's commit index, once Raft runs

	mu     sync.Mutex // guards the fields below
	newest covered    // by the newest complete snapshot
	before covered    // by the snapshot before it
	latest covered    // by the snapshot completed last, which may be older
}

// covered is the last entry that a snapshot covers.
type covered struct{ index, term uint64 }

func (c *commitMark) index() uint64 {
	mark := max(c.stored.Load(), c.snapshotIndex())
	if live := c.live.Load(); live != nil {
		mark = max(mark, (*live)())
	}
	return mark
}

func (c *commitMark) noteStored(index uint64) { c.stored.Store(max(c.stored.Load(), index)) }

// noteSnapshot records a complete snapshot. Then the log may delete the entries it covers.
func (c *commitMark) noteSnapshot(index, term uint64) {
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

// snapshots returns the end of the newest complete snapshot, and of the one completed last.
func (c *commitMark) snapshots() (newest, latest covered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest, c.latest
}

func (c *commitMark) snapshotIndex() uint64 {
	newest, _ := c.snapshots()
	return newest.index
}

// lastSurplus returns the last index that may be deleted: the log must reach back to the last snapshot but one.
func (c *commitMark) lastSurplus() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.before.index
}

func (c *commitMark) followRaft(live func() uint64) { c.live.Store(&live) }

// errRestart is in the chain of every error that a restart of the replica repairs.
var errRestart = errors.New("the replica has to be started again")

// checkDelete rejects the deletion of entries first to last, from a log that begins at begin, if they are
// committed and no snapshot has them.
func (c *commitMark) checkDelete(begin, first, last uint64) error {
	mark, snapshot := c.index(), c.snapshotIndex()
	//mutant: switch replaced := first > begin; {
	switch replaced := first > begin || begin > snapshot; { // an overtaken log begins within the snapshot
	case replaced && first <= mark:
		return identity.Refused("the master wants log entries %d to %d replaced, and those up to %d were committed, as this replica has noted. It stops and keeps what it has. There are two possible causes. "+
			"If any replica was started with an empty, damaged or older data directory, the master was elected by replicas that lost their data: "+
			"stop the other replicas, too, before more is lost, and keep every data directory: this one holds what clients were told is done, and the master lacks that. "+
			"Otherwise the master is right, and this replica took entries of a deposed master for committed, as version 0.1.0 could when a replica came back: %s",
			first, last, min(last, mark), identity.LossAdvice)
	case !replaced && min(last, mark) > snapshot:
		return fmt.Errorf("log entries %d to %d are to be deleted, and those above %d, which are committed up to %d, are in no snapshot: an old snapshot arrived late, and nothing was deleted: %w",
			first, last, snapshot, mark, errRestart)
	}
	return nil
}

// checkEmptied is called after entries first to last, the whole log, were deleted for a master's snapshot. It
// returns an error unless the last entry, of that term, is the last one of the newest snapshot or before it.
// Until its next start, Raft believes this entry still in the log, and accepts none of the master's, since none
// follows it.
func (c *commitMark) checkEmptied(begin, first, last, term uint64) error {
	if first > begin {
		return nil // the master's entries replace them
	}
	newest, _ := c.snapshots()
	//mutant: if newest.index == 0 || last < newest.index || last == newest.index && term > 0 {
	//mutant: if newest.index == 0 || last != newest.index || last == newest.index && term == newest.term {
	if newest.index == 0 || last < newest.index || last == newest.index && term == newest.term {
		return nil
	}
	return fmt.Errorf("log entries %d to %d, of which the master does not have the last, were deleted for a snapshot of its: %w", first, last, errRestart)
}

// checkFirst is called before the first entry is stored in an empty log. It returns an error if entries are
// missing between Raft's snapshot and this one. Until its next start, Raft matches the master's entries with
// the log that it has emptied. A late old snapshot has then taken it further back than it knows, and it would
// panic over the missing entries. The newest snapshot has them.
func (c *commitMark) checkFirst(index uint64) error {
	_, latest := c.snapshots()
	if index <= latest.index+1 {
		return nil
	}
	return fmt.Errorf("log entry %d does not follow the snapshot of entry %d, and the log is empty: an old snapshot arrived late: %w", index, latest.index, errRestart)
}
