package master

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Log is the replicated log, as a master needs it.
type Log interface {
	// Append puts an entry into the log, and returns its commands' results once it is applied. After an error
	// of code NotMaster the entry is not in the log, nor ever will be; after any other it may.
	Append(entry []byte) ([]raftfsm.Result, error)
}

// entries puts an epoch's entries into the log, one at a time, in a turn of the proposer (proposer.turn).
type entries struct {
	log   Log
	epoch api.Epoch
	wall  func() int64

	clock  session.Clock
	phases func() steps.Phases // of the last applied entry; nil if no call is traced
	last   *entry              // the newest; nil if none is traced
}

func (n *entries) timed() bool { return n.phases != nil }

// append is AppendEntry, timed if needed.
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
