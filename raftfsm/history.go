package raftfsm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// ApplyData reads a log entry, applies it, and adds it to the running hash. known is the replica's highest
// feature level: MaxLevel outside of tests. If the entry is unreadable, or raises the cell to an unknown level,
// the state does not change, and the replica must stop. That error is Corrupt, with ErrNewer or ErrUnreleased
// in its chain if that is why. An unknown level also ends Edit.
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

func (c Command) raisesLevel() bool { return c.NewEpoch != nil || c.RaiseLevel != nil }

// chain returns the running hash after an entry: over the hash before, the entry, and cheap numbers that show a
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

func checkLevel(level, known int) error {
	if level > known {
		return fmt.Errorf("%w: it is of feature level %d, and this replica knows levels up to %d", ErrNewer, level, known)
	}
	return nil
}
