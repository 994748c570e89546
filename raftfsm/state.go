package raftfsm

import (
	"cmp"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/cowmap"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// State is everything that is replicated. It is a value: a copy is a snapshot, taken in constant
// time, that any number of goroutines may read. Edit makes it cheaper to change, and suspends that.
type State struct {
	Tree     namespace.Tree
	Sessions session.Table[Answer]

	Cell    string     // the cell's name; empty before the first NewEpoch
	CellID  api.CellID // of the bootstrap from which the cell's tokens come: of this one, or of the cell whose backup was restored
	Origin  api.CellID // of this bootstrap, if that is another since a backup was restored; else empty
	Secret  []byte     // signs handles, sessions, tickets and sequencers, and encrypts marks of pages
	Epoch   api.Epoch  // of the latest NewEpoch
	Applied uint64     // the Raft index of the last entry applied
	Counter uint64     // the fencing counter: source of instances, all generations, sessions and delays
	Level   int        // the feature level; see MaxLevel
	Roster  Roster     // which replicas the cell has, once that was changed

	Unproved api.Generation // the last one whose grant came with a sequencer without proof; 0 if the cell began with proofs

	Restored *Restoration // the last one; nil if there was none
	History  uint64       // a running hash of all entries applied; ApplyData updates it, and Apply does not

	quotas  cowmap.Map[string, api.Quota] // those that were set, by principal
	past    past                          // of the locks
	staged  *staged                       // the backup that is being restored; nil if none is
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

// rootACL is the name of the ACL that the root directory begins with, and that
// everything below inherits. The bootstrap of a cell creates its file, which
// admits everybody.
const rootACL = "everyone"

// draw returns the next number of the fencing counter. There is one counter, so
// that no number is used for two things (decision 7).
func (s *State) draw() uint64 {
	s.Counter++
	return s.Counter
}

func (s *State) drawGeneration() api.Generation { return api.Generation(s.draw()) }

// principal returns the principal of a session.
func (s *State) principal(id api.SessionID) string {
	if one, ok := s.Sessions.Get(id); ok {
		return one.Principal
	}
	return ""
}

// Restoration is a restore of the cell. It does not change.
type Restoration struct {
	Source  BackupSource `cbor:"1,keyasint"`
	AtUnix  int64        `cbor:"2,keyasint"` // by the clock of the master
	Counter uint64       `cbor:"3,keyasint"` // the fencing counter then: nothing that was issued before is above it
}
