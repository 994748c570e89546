package raftfsm

import (
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// handOver grants the locks that a command freed to its claims.
func (s *State) handOver(r *Result, successions []Succession, wall int64) {
	for _, next := range successions {
		if slices.Contains(r.Free, next.Lock.Name) {
			r.Claims = append(r.Claims, s.grant(next, wall)...)
		}
	}
}

func (s *State) release(c *Release, wall int64) Result {
	return s.once(c.Mutation, nil, func() Result {
		by := namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle}
		dropped, err := s.Tree.Release(c.Lock, by, c.Generation)
		if err != nil {
			return refuse(err)
		}
		return s.letGo(dropped, api.ByClose, c.Successions, wall)
	})
}

// letGo returns the result of a command by which holders have released or lost a lock.
func (s *State) letGo(dropped namespace.Dropped, why api.EndReason, successions []Succession, wall int64) Result {
	s.remember(dropped.Left, why, wall)
	r := Result{Dropped: dropped}
	s.handOver(&r, successions, wall)
	return r
}

func (s *State) endDelay(c *EndDelay, wall int64) Result {
	if !s.Tree.EndDelay(c.Name, c.ID) {
		return Result{}
	}
	r := Result{Dropped: namespace.Dropped{Free: []api.Name{c.Name}}}
	s.handOver(&r, c.Successions, wall)
	return r
}
