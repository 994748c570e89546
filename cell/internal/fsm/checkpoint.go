package fsm

import "github.com/chubbylock/chubby/raftfsm"

// CheckPoint is an entry of the log without a command. It changes nothing: it is where every replica hashes its whole state,
// so that these can be compared. All versions apply such an entry, so it needs no feature level.
type CheckPoint struct {
	Index, Term uint64        // of the entry
	State       raftfsm.State // after it; a snapshot, which costs nothing but what is changed later
}

// OnCheckPoint has reached called when a check point has been applied. It must not block, nor call the FSM: its lock
// is held. OnCheckPoint is to be called before Raft starts.
func (f *FSM) OnCheckPoint(reached func(CheckPoint)) { f.reached = reached }
