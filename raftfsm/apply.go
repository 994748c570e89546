package raftfsm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// Apply applies one entry of the Raft log, whose term is term, and returns one result a command. Commands of
// another epoch, or before that epoch's NewEpoch, and a repeated NewEpoch have no effect: their answer is
// StaleEpoch.
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

// apply dispatches one command of the current epoch. The wall clock is only for records that people read.
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
		return s.letGo(s.Tree.Evict(c.Evict.Lock, c.Evict.Generation, c.Evict.Holders), api.ByBreak, c.Evict.Successions, wall)
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

// Try returns the answer that a command of the current epoch would get now, without effect.
func (s *State) Try(c Command) Answer {
	tried := s.Snapshot()
	tried.Edit()
	return tried.apply(c, 0).Answer
}

// Growth returns the weight that a command would add to the tree now, negative if it makes room; or its
// refusal.
func (s *State) Growth(c Command) (int64, *refusal.Refusal) {
	tried := s.Snapshot()
	tried.Edit()
	refused := tried.apply(c, 0).Answer.Refusal
	return tried.Tree.Counts().Weight() - s.Tree.Counts().Weight(), refused
}

func (s *State) raiseLevel(c *RaiseLevel) Result {
	return s.operate(c.Mutation, func(string) Result {
		//mutant: if c.To == s.Level {
		if c.To <= s.Level {
			return refuse(&refusal.Refusal{Cause: refusal.LevelReached, Used: int64(s.Level)})
		}
		if !s.HasProofs() && c.To >= proofLevel {
			s.Unproved = api.Generation(s.Counter)
		}
		s.Level = c.To
		return Result{}
	})
}

// once makes a mutation happen exactly once: for a request's first arrival it calls do, if the preconditions
// hold, and keeps the answer. A retry gets that answer (decision 13).
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

// operate is once for what only an operator may do.
func (s *State) operate(m session.Mutation, do func(operator string) Result) Result {
	return s.once(m, nil, func() Result {
		by := s.principal(m.Session)
		//mutant: if err := s.PermitOperator(by); false { _ = err
		if err := s.PermitOperator(by); err != nil {
			return refuse(err)
		}
		return do(by)
	})
}

// replay returns the answer to a retry. It repeats a grant only while the session holds the lock without a
// pending revocation: the client may have acknowledged that, and would not get the event again.
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

func (s *State) createSession(c *CreateSession, wall int64) Result {
	if found, ok := s.Sessions.ByNonce(c.Nonce); ok {
		return Result{Session: found.ID}
	}
	if c.Lease < api.MinLease || c.Lease > api.MaxLease {
		return refuse(&refusal.Refusal{Cause: refusal.LeaseOutOfRange, Length: c.Lease})
	}
	if by, sealed := s.Restoring(); sealed {
		return refuse(&refusal.Refusal{Cause: refusal.RestoreUnderWay, Session: by, Principal: s.principal(by)})
	}
	if used, allowed := s.Sessions.Of(c.Principal), s.Quota(c.Principal).Sessions; used >= allowed {
		return refuse(&refusal.Refusal{Cause: refusal.SessionQuota, Principal: c.Principal, Used: int64(used), Allowed: int64(allowed)})
	}
	id := api.SessionID(s.draw())
	s.Sessions.Put(&session.Session[Answer]{
		ID: id, Nonce: c.Nonce, Principal: c.Principal, Host: c.Host, PID: c.PID, Lease: c.Lease, MayCache: c.MayCache,
		SinceUnix: wall, Asked: c.Lease, CacheLease: c.CacheLease,
	})
	return Result{Session: id}
}

func (s *State) raiseLease(c *RaiseLease) Result {
	if err := s.Sessions.RaiseLease(c.Session, c.Lease); err != nil {
		return refuse(err)
	}
	return Result{}
}

// endSessions ends sessions in the given order, and skips ended ones.
func (s *State) endSessions(c *EndSessions, wall int64) Result {
	var r Result
	for _, end := range c.Ends {
		who, ok := s.Sessions.Get(end.Session)
		if !ok {
			continue
		}
		dropped := s.Tree.DropSession(end.Session, end.Failed(), s.draw)
		s.remember(dropped.Left, end.why(), wall)
		s.Sessions.End(end.Session)
		if s.staged != nil && s.staged.session == end.Session {
			s.staged = nil
		}
		r.Ended = append(r.Ended, Ended{End: end, Principal: who.Principal, Host: who.Host, PID: who.PID})
		//mutant: _ = dropped.Left
		r.Left = append(r.Left, dropped.Left...)
		r.Free = append(r.Free, dropped.Free...)
		r.Vacant = append(r.Vacant, dropped.Vacant...)
		r.Delayed = append(r.Delayed, dropped.Delayed...)
		r.Dying = append(r.Dying, dropped.Dying...)
	}
	s.handOver(&r, c.Successions, wall)
	return r
}

// cancel withdraws a request. If it is done, its answer stays valid, even a grant.
func (s *State) cancel(c *Cancel) Result {
	m := c.Mutation
	if c.Refusal == nil {
		m.Hash = 0 // matches any request with this number
	}
	return s.once(m, nil, func() Result {
		if c.Refusal != nil {
			return refuse(c.Refusal)
		}
		return refuse(&refusal.Refusal{Cause: refusal.Withdrawn})
	})
}

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
