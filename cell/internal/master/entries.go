package master

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Log is the replicated log, as a master needs it.
type Log interface {
	// Append puts an entry into the log, and returns the results of its commands when it has been applied.
	// After an error of code NotMaster the entry never gets into the log; after any other it may.
	Append(entry []byte) ([]raftfsm.Result, error)
}

// entries puts the entries of one epoch into the log, one at a time. Its caller holds the turn of the
// proposer (proposer.turn).
type entries struct {
	log   Log
	epoch api.Epoch
	wall  func() int64

	clock  session.Clock
	phases func() steps.Phases // of the last entry applied; nil if no call is traced, so entries are not timed
	last   *entry              // the newest one; nil if they are not timed
}

// timed reports whether entries are timed, for traces.
func (n *entries) timed() bool { return n.phases != nil }

// append puts commands into the log as one entry, and returns their results.
func (n *entries) append(commands []raftfsm.Encoded) ([]raftfsm.Result, error) {
	if !n.timed() {
		return AppendEntry(n.log, n.epoch, n.wall(), commands)
	}
	now := &entry{commands: len(commands), from: n.clock()}
	results, err := AppendEntry(n.log, n.epoch, n.wall(), commands)
	if now.committed = err == nil; now.committed {
		now.phases = n.phases()
	}
	n.last = now
	return results, err
}

// AppendEntry puts commands into the log as one entry, and returns their results.
func AppendEntry(log Log, epoch api.Epoch, wall int64, commands []raftfsm.Encoded) ([]raftfsm.Result, error) {
	data, err := raftfsm.JoinEntry(epoch, wall, commands)
	if err != nil {
		return nil, err
	}
	results, err := log.Append(data)
	if err == nil && len(results) != len(commands) {
		return nil, api.Errorf(api.Uncertain, "the entry's results are missing")
	}
	return results, err
}
