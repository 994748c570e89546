package disk

import (
	"errors"

	"github.com/hashicorp/raft"
)

// emptyOvertaken deletes an overtaken log: one that does not continue the newest snapshot, of that index and
// term. Raft does so after it installs a leader's snapshot, but a crash may come between. Raft then appends the
// entry after the snapshot, and raft-wal, which accepts no gaps, would permanently reject it. Entries before a
// gap, or of another term than the snapshot, may never have been committed.
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
	//mutant: if last+1 > 0 || first > base {
	if last == 0 || first > base {
		return nil
	}
	var at raft.Log
	err = readLog(s.rawLogs, base, &at)
	absent := errors.Is(err, raft.ErrLogNotFound)
	unreadable := err != nil && !absent // not needed at the start, if others follow
	switch {
	case absent:
		last = min(last, base) // an earlier version left a gap in bbolt's log
	//mutant: case unreadable && last == 0:
	case unreadable && last == base: // Raft reads the last entry
	//mutant: case unreadable || at.Term > 0:
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
