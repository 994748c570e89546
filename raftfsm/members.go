package raftfsm

import "github.com/chubbylock/chubby/refusal"

func (s *State) changeMembers(c *ChangeMembers, wall int64) Result {
	return s.once(c.Mutation, nil, func() Result {
		//mutant: var err error
		err := s.PermitOperator(s.principal(c.Mutation.Session))
		if err != nil {
			return refuse(err)
		}
		now := s.Roster
		if len(now.Members) == 0 {
			if now, err = foundersOf(c.Founders); err != nil {
				return refuse(err)
			}
		}
		switch adds, removes, keeps := c.Add != nil, c.Remove != "", c.Keep != ""; {
		case adds && !removes && !keeps:
			now, err = now.add(*c.Add)
		case removes && !adds && !keeps:
			now, err = now.remove(c.Remove)
		case keeps && !adds && !removes:
			now, err = now.keep(c.Keep)
		default:
			err = &refusal.Refusal{Cause: refusal.MemberMalformed}
		}
		if err != nil {
			return refuse(err)
		}
		now.Author, now.SinceUnix = s.principal(c.Mutation.Session), wall
		s.Roster = now
		return Result{}
	})
}

// settleMember records that Raft's configuration follows the decision. It is idempotent.
func (s *State) settleMember(c *SettleMember, wall int64) Result {
	m, ok := s.Roster.Find(c.ID)
	switch {
	case !ok || m.Phase != c.Phase:
	case m.Phase == Joining:
		replaced := m.Replaces
		m.Phase, m.Replaces = Settled, "" // a later change is independent of that one
		s.Roster = s.Roster.with(m)
		if old, ok := s.Roster.Find(replaced); ok && old.Phase == Settled {
			old.Phase = Leaving
			s.Roster = s.Roster.with(old)
		}
	case m.Phase == Leaving:
		m.Phase = Left
		s.Roster = s.Roster.with(m)
	case m.Phase == Standby:
		old, ok := s.Roster.Find(c.Replaces)
		if _, busy := s.Roster.Unsettled(); busy || !ok || old.Phase != Settled {
			return Result{}
		}
		m.Phase, m.Replaces = Joining, old.ID
		s.Roster = s.Roster.with(m)
		s.Roster.Author, s.Roster.SinceUnix = "", wall
	}
	return Result{}
}
