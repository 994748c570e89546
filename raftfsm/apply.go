package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
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
