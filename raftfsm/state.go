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

// Edit begins in-place changes: each entry copies less of the state, or nothing without a new snapshot.
// Meanwhile the state must not be copied, nor read by other goroutines; use Snapshot.
func (s *State) Edit() {
	s.Tree.Edit()
	s.Sessions.Edit()
	s.quotas.Edit()
	s.past.edit()
	if s.staged != nil {
		s.staged = s.staged.snapshot() // copies of the state keep the old one
		s.staged.edit()
	}
	s.editing = true
}

// Settle ends Edit: a copy of the state is a snapshot again.
func (s *State) Settle() {
	s.Tree.Settle()
	s.Sessions.Settle()
	s.quotas.Settle()
	s.past.settle()
	if s.staged != nil {
		s.staged.settle()
	}
	s.editing = false
}

// Snapshot returns the current state, in constant time. Its copies are snapshots, too, and any number of
// goroutines may read it.
func (s *State) Snapshot() State {
	now := *s
	now.Tree, now.Sessions, now.quotas, now.editing = s.Tree.Snapshot(), s.Sessions.Snapshot(), s.quotas.Snapshot(), false
	now.past, now.staged = s.past.snapshot(), s.staged.snapshot()
	return now
}

// Check verifies the invariants of the state, for tests and for new snapshots.
func (s State) Check() error {
	if err := s.Tree.Check(); err != nil {
		return err
	}
	if err := s.Sessions.Check(); err != nil {
		return err
	}
	if err := s.Roster.check(); err != nil {
		return err
	}
	if err := s.checkStaged(); err != nil {
		return err
	}
	if err := s.checkPast(); err != nil {
		return err
	}
	for principal, q := range s.Quotas() {
		if err := q.Validate(); err != nil || q == (api.Quota{}) {
			return api.Errorf(api.Corrupt, "the quota of %q, %+v, cannot be", principal, q)
		}
	}
	for n := range s.Tree.All() {
		newest := max(n.Instance, n.Lock, n.Content, n.ACLs)
		if uint64(newest) > s.Counter {
			return api.Errorf(api.Corrupt, "%q is at generation %d, above the cell's counter, %d", n.Name, newest, s.Counter)
		}
		for _, h := range n.Holders {
			if _, ok := s.Sessions.Get(h.Session); !ok {
				return api.Errorf(api.Corrupt, "%q is held by the unknown session %v", n.Name, h.Session)
			}
		}
		for _, o := range n.Openers {
			if _, ok := s.Sessions.Get(o.Session); !ok {
				return api.Errorf(api.Corrupt, "%q is open in the unknown session %v", n.Name, o.Session)
			}
		}
	}
	return nil
}

// checkPast verifies the invariants of past holdings: above all, that no lock had two holders.
func (s *State) checkPast() error {
	nodes, count := 0, 0
	for n := range s.Tree.All() {
		list, ok := s.past.byNode.Get(placeOf(n))
		if !ok {
			continue
		}
		nodes, count = nodes+1, count+len(list)
		if len(list) == 0 || len(list) > api.MaxHoldings {
			return api.Errorf(api.Corrupt, "of the lock of %q %d holdings are remembered", n.Name, len(list))
		}
		for i, h := range list {
			if h.Until < h.Generation || uint64(h.Until) > s.Counter || i > 0 && h.Until < list[i-1].Until || !h.Mode.Valid() || h.End == 0 {
				return api.Errorf(api.Corrupt, "the lock of %q was not held as it is remembered, with token %d until %d", n.Name, h.Generation, h.Until)
			}
			for _, before := range list[:i] {
				if h.Together(*before) {
					return api.Errorf(api.Corrupt, "the lock of %q is remembered as held by two, with tokens %d and %d", n.Name, before.Generation, h.Generation)
				}
			}
			if now := (api.Holding{Mode: n.Mode, Generation: n.Lock}); len(n.Holders) > 0 && h.Together(now) {
				return api.Errorf(api.Corrupt, "the lock of %q is held with token %d, and remembered as held with token %d", n.Name, n.Lock, h.Generation)
			}
		}
	}
	if nodes != s.past.byNode.Len() || count != s.past.count || count > s.past.most {
		return api.Errorf(api.Corrupt, "%d holdings of %d nodes are remembered, and %d of %d are of nodes that there are", s.past.count, s.past.byNode.Len(), count, nodes)
	}
	return nil
}

func (s State) checkStaged() error {
	g := s.staged
	if g == nil {
		return nil
	}
	if err := g.tree.Check(); err != nil {
		return err
	}
	if _, ok := s.Sessions.Get(g.session); !ok {
		return api.Errorf(api.Corrupt, "a backup is restored by the unknown session %v", g.session)
	}
	for n := range s.Tree.OwnedBy(g.session) {
		if g.sealed {
			return api.Errorf(api.Corrupt, "a backup is about to be restored by session %v, which owns %q", g.session, n.Name)
		}
	}
	for one := range s.Sessions.All() {
		if g.sealed && one.ID != g.session && one.Terminating == nil {
			return api.Errorf(api.Corrupt, "a backup is about to be restored, and session %v goes on", one.ID)
		}
	}
	for n := range g.tree.All() {
		if newest := max(n.Instance, n.Lock, n.Content, n.ACLs); uint64(newest) > max(g.Counter, 1) {
			return api.Errorf(api.Corrupt, "%q of a backup is at generation %d, above its counter, %d", n.Name, newest, g.Counter)
		}
	}
	return nil
}
