package disk

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chubbylock/chubby/cell/internal/identity"
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

// Contradiction is why a replica must not run on its data: a majority has another state after the same entry.
type Contradiction struct {
	Index  uint64   `json:"index"` // of that entry
	Ours   string   `json:"ours"`  // a hash of the state there
	Theirs string   `json:"theirs"`
	By     []string `json:"by"`  // who contradicts
	Why    string   `json:"why"` // for people, with what to do next
}

// NoteContradiction durably forbids replicas to run on this directory. It changes nothing else there.
func (s *Stores) NoteContradiction(c Contradiction) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	//mutant: _ = text; return nil //by TestContradictedReplicaStops of ./cell
	return writeDurably(filepath.Join(s.dir, ContradictionName), append(text, '\n'))
}

// ReadContradiction returns why no replica may run on a directory, or nil. An unreadable note counts.
func ReadContradiction(dir string) (*Contradiction, error) {
	path := filepath.Join(dir, ContradictionName)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case isDenied(err):
		return nil, dataError(path, err, "it cannot be read")
	}
	c := &Contradiction{}
	//mutant: if json.Unmarshal(text, c) != nil { return nil, nil }; if c.Why == "" {
	if err != nil || json.Unmarshal(text, c) != nil || c.Why == "" {
		c.Why = "the others had another state than this replica: " + identity.LossAdvice
	}
	return c, nil
}
