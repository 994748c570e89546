package raftfsm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// ApplyData reads an entry of the Raft log, applies it, and adds it to the running hash. known is
// the highest feature level that the replica knows: MaxLevel outside of tests. If the entry cannot
// be read, or raises the cell to a level that the replica does not know, the state does not change,
// and the replica must stop: it cannot follow its cell. Such an error is Corrupt, with ErrNewer or
// ErrUnreleased in its chain if that is why. An unknown level also ends what Edit began.
func (s *State) ApplyData(index, term uint64, data []byte, known int) ([]Result, error) {
	entry, err := DecodeEntry(data)
	if err != nil {
		return nil, err
	}
	var before State
	raises := slices.ContainsFunc(entry.Commands, Command.raisesLevel)
	if raises {
		before = s.Snapshot()
	}
	results := s.Apply(index, term, entry)
	if err := checkLevel(s.Level, known); err != nil {
		if raises {
			*s = before
		}
		return nil, unreadable("a log entry", err)
	}
	s.History = chain(s, index, term, data)
	return results, nil
}

// raisesLevel reports whether the command may change the state's level.
func (c Command) raisesLevel() bool { return c.NewEpoch != nil || c.RaiseLevel != nil }

// chain returns the running hash after an entry. It covers the hash before, the
// entry, and some numbers of the state that are cheap to read and show a
// divergence.
func chain(s *State, index, term uint64, data []byte) uint64 {
	counts := s.Tree.Counts()
	sum := sha256.New()
	var head []byte
	for _, n := range []uint64{s.History, index, term, s.Counter, uint64(counts.Nodes), uint64(counts.Locks), uint64(counts.Bytes), uint64(s.Sessions.Len())} {
		head = binary.BigEndian.AppendUint64(head, n)
	}
	sum.Write(head)
	sum.Write(data)
	return binary.BigEndian.Uint64(sum.Sum(nil))
}

// checkLevel returns ErrNewer for a level above the highest that a replica
// knows.
func checkLevel(level, known int) error {
	if level > known {
		return fmt.Errorf("%w: it is of feature level %d, and this replica knows levels up to %d", ErrNewer, level, known)
	}
	return nil
}
