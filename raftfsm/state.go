package raftfsm

import (
	"cmp"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/cowmap"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
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

// Apply applies one entry of the Raft log and returns one result a command.
// term is the term of the log entry. Commands of another epoch, or from before
// that epoch's NewEpoch, and a NewEpoch of an epoch that has begun do nothing:
// their answer is StaleEpoch.
func (s *State) Apply(index, term uint64, e Entry) []Result {
	if !s.editing {
		s.Edit()
		defer s.Settle()
	}
	s.Applied = index
	results := make([]Result, len(e.Commands))
	for i, c := range e.Commands {
		switch {
		case uint64(e.Epoch) != term:
			results[i] = refuse(&refusal.Refusal{Cause: refusal.OtherTerm, Epoch: e.Epoch, CurrentEpoch: api.Epoch(term)})
		case c.NewEpoch != nil:
			results[i] = s.newEpoch(e.Epoch, c.NewEpoch, e.Wall)
		case s.Epoch != e.Epoch:
			results[i] = refuse(&refusal.Refusal{Cause: refusal.EpochUnbegun, Epoch: e.Epoch, CurrentEpoch: s.Epoch})
		default:
			results[i] = s.apply(c, e.Wall)
		}
	}
	return results
}

// apply dispatches one command of the current epoch. Use the wall clock only
// for records that people read.
func (s *State) apply(c Command, wall int64) Result {
	switch {
	case c.CreateSession != nil:
		return s.createSession(c.CreateSession, wall)
	case c.RaiseLease != nil:
		return s.raiseLease(c.RaiseLease)
	case c.EndSessions != nil:
		return s.endSessions(c.EndSessions, wall)
	case c.Open != nil:
		return s.open(c.Open, wall)
	case c.Close != nil:
		return s.close(c.Close, wall)
	case c.SetContents != nil:
		return s.setContents(c.SetContents, wall)
	case c.Delete != nil:
		return s.delete(c.Delete)
	case c.Acquire != nil:
		return Result{Claims: s.grant(c.Acquire.Succession, wall)}
	case c.Release != nil:
		return s.release(c.Release, wall)
	case c.EndDelay != nil:
		return s.endDelay(c.EndDelay, wall)
	case c.Cancel != nil:
		return s.cancel(c.Cancel)
	case c.Remove != nil:
		return s.remove(c.Remove)
	case c.SetACL != nil:
		return s.setACL(c.SetACL)
	case c.Revoke != nil:
		return s.revoke(c.Revoke, wall)
	case c.Evict != nil:
		return s.evict(c.Evict, wall)
	case c.Terminate != nil:
		return s.terminate(c.Terminate)
	case c.SetQuota != nil:
		return s.setQuota(c.SetQuota)
	case c.RaiseLevel != nil:
		return s.raiseLevel(c.RaiseLevel)
	case c.Restore != nil:
		return s.restore(c.Restore, wall)
	case c.ChangeMembers != nil:
		return s.changeMembers(c.ChangeMembers, wall)
	case c.SettleMember != nil:
		return s.settleMember(c.SettleMember, wall)
	case c.Txn != nil:
		return s.txn(c.Txn, wall)
	}
	return refuse(&refusal.Refusal{Cause: refusal.EmptyCommand})
}

// Try returns the answer that a command of the current epoch would get now. It
// changes nothing.
func (s *State) Try(c Command) Answer {
	tried := s.Snapshot()
	tried.Edit()
	return tried.apply(c, 0).Answer
}

// Growth returns by how much a command would make the tree weigh more, as things are, less than nothing if it makes room; or why it would
// be refused.
func (s *State) Growth(c Command) (int64, *refusal.Refusal) {
	tried := s.Snapshot()
	tried.Edit()
	refused := tried.apply(c, 0).Answer.Refusal
	return tried.Tree.Counts().Weight() - s.Tree.Counts().Weight(), refused
}

// newEpoch begins an epoch. Each epoch begins only once, because its master
// numbers grants, events and tickets from 1.
func (s *State) newEpoch(epoch api.Epoch, c *NewEpoch, wall int64) Result {
	if epoch <= s.Epoch {
		return refuse(&refusal.Refusal{Cause: refusal.EpochBegun, Epoch: epoch, CurrentEpoch: s.Epoch})
	}
	if s.Cell == "" {
		s.Cell, s.CellID, s.Secret, s.Level = c.Cell, c.CellID, c.Secret, max(c.Level, 1)
		s.bootstrap(c.Operators, wall)
	}
	if c.RestoreAccess {
		s.restoreAccess(wall)
	}
	//mutant: s.Epoch, s.Level = epoch, max(s.Level, c.Level)
	s.Epoch = epoch
	return Result{}
}

// bootstrap creates the directory of ACLs, and the list that admits everybody. If operators are named, it
// creates their list, too, and has them alone change the lists and the ACL of the root.
func (s *State) bootstrap(operators []string, wall int64) {
	var acl api.ACL // empty names are those of the node above
	if len(operators) > 0 {
		acl = api.ACL{Write: operatorsACL, Change: operatorsACL}
		root, _ := s.Tree.Get("")
		//mutant: _, _ = s.Tree.SetACL(root.Ref(), api.ACL{}, nil, s.drawGeneration) //by TestOperators of ./cell
		_, _ = s.Tree.SetACL(root.Ref(), api.ACL{Change: operatorsACL}, nil, s.drawGeneration) // cannot fail: the name is short
	}
	for _, spec := range []struct {
		name api.Name
		namespace.Spec
		wanted bool
	}{
		{api.ACLDir, namespace.Spec{Kind: api.Directory, ACL: acl}, true},
		{namespace.ACLFile(rootACL), namespace.Spec{Kind: api.File, Contents: []byte(everybody)}, true},
		{namespace.ACLFile(operatorsACL), namespace.Spec{Kind: api.File, Contents: []byte(strings.Join(operators, "\n") + "\n")}, len(operators) > 0},
	} {
		if spec.wanted {
			spec.ModifiedUnix = s.modifiedUnix(wall)
			_, _ = s.Tree.Create(spec.name, spec.Spec, s.drawGeneration()) // an existing node stays as it is
		}
	}
}

// once makes a mutation happen exactly once: it calls do for the first arrival
// of a request, if the preconditions hold, and keeps the answer; a retry gets
// that answer and has no effects (decision 13).
func (s *State) once(m session.Mutation, preconditions []Precondition, do func() Result) Result {
	answer, done, err := s.Sessions.Begin(m)
	switch {
	case err != nil:
		return refuse(err)
	case done:
		return Result{Answer: s.replay(m.Session, answer)}
	}
	var r Result
	//mutant: if err := s.checkPreconditions(preconditions[:0]); err != nil { //by TestAPI of ./e2e
	if err := s.checkPreconditions(preconditions); err != nil {
		r = refuse(err)
	} else {
		r = do()
	}
	s.Sessions.Finish(m, r.Answer)
	return r
}

// replay returns the answer to a retry. It repeats a grant only while the
// session holds the lock and it is not being revoked: the client may have
// acknowledged the revocation already, and would not get the event a second
// time.
func (s *State) replay(id api.SessionID, a Answer) Answer {
	if a.Refusal != nil || a.Generation == 0 {
		return a
	}
	node, err := s.Tree.Resolve(a.Lock)
	//mutant: if true || err == nil && node.Lock == a.Generation && node.Revoked == nil && node.Holds(namespace.Owner{Session: id, Handle: a.Handle}) {
	if err == nil && node.Lock == a.Generation && node.Revoked == nil && node.Holds(namespace.Owner{Session: id, Handle: a.Handle}) {
		return a
	}
	return refused(&refusal.Refusal{Cause: refusal.GrantLost, Generation: a.Generation})
}

// Check verifies the invariants of the state, for tests and for snapshots that
// were just read.
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
