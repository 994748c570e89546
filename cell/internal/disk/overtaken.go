package disk

import (
	"errors"

	"github.com/hashicorp/raft"
)

// emptyOvertaken deletes the entries of a log that the newest snapshot, of that index
// and term, has overtaken: where the log does not go on from it. That is what Raft does
// when it has installed a snapshot of the leader's, and a crash may come between the
// two. The next entry that it appends is the one after the snapshot: raft-wal, which
// takes no gap, would refuse it for good, and of what is before a gap, or of another
// term than the snapshot, nobody knows whether it was ever committed.
func (s *Stores) emptyOvertaken(base, term uint64) error {
	failed := func(err error) error {
		return dataError(s.dir, err, "the log, which the newest snapshot (of entry %d) has overtaken, cannot be emptied", base)
	}
	first, err := s.rawLogs.FirstIndex()
	if err != nil {
		return failed(err)
	}
	last, err := s.rawLogs.LastIndex()
	if err != nil {
		return failed(err)
	}
	if last == 0 || first > base {
		return nil
	}
	var at raft.Log
	err = readLog(s.rawLogs, base, &at)
	absent := errors.Is(err, raft.ErrLogNotFound)
	unreadable := err != nil && !absent // and not needed to start, if others follow
	switch {
	case absent:
		last = min(last, base) // an earlier version left bbolt's log with a gap
	case unreadable && last == base: // Raft reads the last one
	case unreadable || at.Term == term:
		return nil
	}
	for index := base + 1; index <= last; index++ {
		if mark, err := readMarked(s.rawLogs, index, &raft.Log{}); err != nil || mark > base {
			return damaged(s.dir, err, "the newest snapshot is of entry %d and term %d, the log has that entry of term %d, and goes on to entry %d, committed up to %d",
				base, term, at.Term, last, mark)
		}
	}
	if err := s.rawLogs.DeleteRange(first, last); err != nil {
		return failed(err)
	}
	return nil
}
