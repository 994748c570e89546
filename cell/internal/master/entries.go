package master

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Log is the replicated log, as a master needs it.
type Log interface {
	// Append puts an entry into the log and returns when it has been applied, with what
	// its commands did. After an error of code NotMaster the entry is not in the log and
	// never will be; after any other it may be.
	Append(entry []byte) ([]raftfsm.Result, error)
}

// entries puts the entries of one epoch into the log, one at a time. It is used in a turn of the proposer (proposer.turn).
type entries struct {
	log   Log
	epoch api.Epoch
	wall  func() int64

	clock  session.Clock
	phases func() steps.Phases // of the last entry that was applied; nil if entries are not timed, as no call is traced
	last   *entry              // the newest one; nil if they are not timed
}

// timed reports whether it is noted when entries were written and applied, for traces.
func (n *entries) timed() bool { return n.phases != nil }

// append puts commands into the log as one entry, and returns what they did.
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

// AppendEntry puts commands into the log as one entry, and returns what they did.
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
