package raftfsm

import "fmt"

// MaxLevel is the newest feature level that this version of Chubby knows. Every replica
// must compute the same state from the same log, whichever binary applies which part of
// it. So what a command does never depends on the binary, but on the level that the state
// is in. A cell begins at the level of the master that bootstraps it, and a replica that
// does not know its cell's level stops.
//
//	1  v0.1.0
const MaxLevel = 1

// checkLevel returns ErrNewer for a level that this version does not know.
func checkLevel(level int) error {
	if level > MaxLevel {
		return fmt.Errorf("%w: it is of feature level %d, and this replica knows levels up to %d", ErrNewer, level, MaxLevel)
	}
	return nil
}

// checkEntry returns ErrNewer if an entry takes the state to a level that this version does
// not know. The level that a NewEpoch carries means nothing once the cell is bootstrapped:
// a newer master may be elected before the cell is taken to its level.
func (s *State) checkEntry(e Entry) error {
	for _, c := range e.Commands {
		if c.NewEpoch == nil || s.Cell != "" {
			continue
		}
		if err := checkLevel(c.NewEpoch.Level); err != nil {
			return unreadable("a log entry", err)
		}
	}
	return nil
}
