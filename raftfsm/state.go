package raftfsm

import (
	"cmp"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/cowmap"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// State is everything that is replicated. A copy is a snapshot, taken in constant time, which any number of
// goroutines may read. Edit makes changes cheaper, and suspends that.
type State struct {
	Tree     namespace.Tree
	Sessions session.Table[Answer]

	Cell    string     // the cell's name; empty before the first NewEpoch
	CellID  api.CellID // of the bootstrap from which the cell's tokens come: this one, or that of the restored backup's cell
	Origin  api.CellID // of this bootstrap, if a restore changed CellID; else empty
	Secret  []byte     // signs handles, sessions, tickets and sequencers, and encrypts page marks
	Epoch   api.Epoch  // of the latest NewEpoch
	Applied uint64     // the Raft index of the last applied entry
	Counter uint64     // the fencing counter: source of instances, all generations, sessions and delays
	Level   int        // the feature level; see MaxLevel
	Roster  Roster     // the cell's replicas, once they have changed

	Unproved api.Generation // the last generation granted with a sequencer without proof; 0 if the cell began with proofs

	Restored *Restoration // the last one; nil without a restore
	History  uint64       // a running hash of all applied entries; ApplyData updates it, Apply does not

	quotas  cowmap.Map[string, api.Quota] // by principal
	past    past                          // of the locks
	staged  *staged                       // the backup in restore, or nil
	editing bool                          // since Edit
}

// NewState returns the state of a cell before its bootstrap.
func NewState() State {
	return State{
		Tree:     namespace.New(api.ACL{Read: rootACL, Write: rootACL, Change: rootACL}),
		Sessions: session.NewTable[Answer](),
		Counter:  1, // the root directory is instance 1
		quotas:   cowmap.New[string, api.Quota](cmp.Less[string]),
		past:     newPast(maxPast),
	}
}

// rootACL is the root's first ACL name, which everything below inherits. The bootstrap creates its file, which
// admits everybody.
const rootACL = "everyone"

// draw returns the fencing counter's next number: with one counter, no number has two uses (decision 7).
func (s *State) draw() uint64 {
	s.Counter++
	return s.Counter
}

func (s *State) drawGeneration() api.Generation { return api.Generation(s.draw()) }

func (s *State) principal(id api.SessionID) string {
	if one, ok := s.Sessions.Get(id); ok {
		return one.Principal
	}
	return ""
}

// Restoration is a finished restore. It does not change.
type Restoration struct {
	Source  BackupSource `cbor:"1,keyasint"`
	AtUnix  int64        `cbor:"2,keyasint"` // by the master's clock
	Counter uint64       `cbor:"3,keyasint"` // the fencing counter then: above all numbers issued before
}
