package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

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
