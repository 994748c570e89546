package disk

import (
	"io"
	"path/filepath"

	"github.com/hashicorp/raft"
)

// covered returns the index up to which a readable snapshot has everything, 0 without one.
func (s *Stores) covered() uint64 {
	if s.rawSnaps == nil {
		return 0
	}
	index, _, err := s.readableSnapshot()
	if err != nil {
		return 0 // verify reports the fault, if the snapshot is needed
	}
	return index
}

// verify reads what Raft will read, and would panic over: the newest snapshot, and all later log entries,
// without a gap.
func (s *Stores) verify() error {
	newest, err := newestSnapshot(s.dir)
	if err != nil {
		return err
	}
	base, term, err := s.readableSnapshot()
	if err != nil {
		return err
	}
	if err := s.emptyOvertaken(base, term); err != nil {
		return err
	}
	last, err := s.rawLogs.LastIndex()
	if err != nil {
		return dataError(s.dir, err, "the log cannot be read")
	}
	s.last = max(base, last)
	s.mark.noteSnapshot(base, term)
	for index := base + 1; index <= last; index++ {
		var entry raft.Log
		mark, err := readMarked(s.rawLogs, index, &entry)
		if err != nil {
			return damaged(s.dir, err, "log entry %d of %d cannot be read (snapshot at %d)", index, last, base)
		}
		if entry.Term < term {
			return damaged(s.dir, nil, "log entry %d is of term %d, the one before it of %d", index, entry.Term, term)
		}
		term = entry.Term
		//mutant: _ = mark
		s.mark.noteStored(mark)
		if entry.Type == raft.LogConfiguration {
			s.configuration = raft.DecodeConfiguration(entry.Data)
		}
	}
	if err := s.checkEnd(newest); err != nil {
		return err
	}
	return s.checkVotes(term)
}

// checkEnd rejects data that ends before what this replica has held. A master's snapshot replaces the whole
// log: if it is unreadable, an older snapshot and an empty log still follow each other without a gap.
func (s *Stores) checkEnd(newest uint64) error {
	switch {
	case newest > s.last:
		return damaged(filepath.Join(s.dir, snapshotsName), nil, "the snapshot of entry %d cannot be read, and without it the data ends at entry %d", newest, s.last)
	case s.last == 0 && s.who.Get().Begun:
		return damaged(s.dir, nil, "it has neither an entry nor a snapshot, though this replica has run here")
	}
	return nil
}

// checkVotes compares the votes with the newest entry's term. Raft writes a term before any entry of it, so
// votes of an earlier term are an old copy, with which a replica could vote twice in a term.
func (s *Stores) checkVotes(term uint64) error {
	path := filepath.Join(s.dir, votesName)
	current, err := s.rawVotes.GetUint64([]byte(currentTermKey))
	if err != nil {
		return dataError(path, err, "the votes cannot be read")
	}
	if current < term {
		return damaged(path, nil, "the votes end in term %d, and the log has an entry of term %d: they are an old copy", current, term)
	}
	return nil
}

// readableSnapshot returns the index and the term of the newest snapshot with the right checksum, which Raft
// will restore; 0 without snapshots. It fails if all are damaged.
func (s *Stores) readableSnapshot() (index, term uint64, err error) {
	list, err := s.rawSnaps.List()
	if err != nil {
		return 0, 0, dataError(s.dir, err, "the snapshots cannot be listed")
	}
	s.unreadable = map[string]bool{}
	for _, meta := range list {
		var r io.ReadCloser
		if _, r, err = s.rawSnaps.Open(meta.ID); err != nil {
			if isDenied(err) {
				return 0, 0, dataError(s.dir, err, "snapshot %s cannot be opened", meta.ID)
			}
			s.unreadable[meta.ID] = true
			continue
		}
		if err := r.Close(); err != nil {
			return 0, 0, dataError(s.dir, err, "snapshot %s cannot be read", meta.ID)
		}
		s.configuration = meta.Configuration
		return meta.Index, meta.Term, nil
	}
	if err != nil {
		return 0, 0, damaged(s.dir, err, "none of %d snapshots can be read", len(list))
	}
	return 0, 0, nil
}
