package raftfsm

import (
	"errors"
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

// grant gives a lock to the claims that can have it, in order. A grant is the claim's stored answer: an
// answered claim gets no second grant, and an ended session none.
func (s *State) grant(next Succession, wall int64) []ClaimResult {
	results := make([]ClaimResult, len(next.Claims))
	for i, c := range next.Claims {
		results[i] = s.grantOne(next.Lock, c, wall)
	}
	return results
}

func (s *State) grantOne(lock namespace.Ref, c Claim, wall int64) ClaimResult {
	by := namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle}
	r := ClaimResult{Owner: by, Number: c.Mutation.Number}
	answer, done, err := s.Sessions.Begin(c.Mutation)
	switch {
	case err != nil:
		r.Answer = refused(err)
		return r
	case done:
		r.Again, r.Answer = true, s.replay(by.Session, answer)
		return r
	}
	if err = s.mayOwn(); err == nil {
		err = s.checkPreconditions(c.Preconditions)
	}
	if err != nil {
		r.Answer = refused(err)
		s.Sessions.Finish(c.Mutation, r.Answer)
		return r
	}
	holder := namespace.Holder{Owner: by, Delay: c.Delay, Reason: c.Reason, SinceUnix: wall, DeclaredOwner: c.DeclaredOwner}
	generation, err := s.Tree.Acquire(lock, holder, c.Mode, s.drawGeneration)
	if err != nil && !c.Try && s.worthWaiting(lock, by, err) {
		r.Pending, r.Answer = true, refused(err)
		return r
	}
	if err != nil {
		r.Answer = refused(err)
	} else {
		r.Answer = Answer{Generation: generation, Lock: lock, Mode: c.Mode, Handle: c.Handle}
	}
	s.Sessions.Finish(c.Mutation, r.Answer)
	return r
}

// worthWaiting reports whether a claim refused with err may be granted later. It may not if by itself holds the
// lock.
func (s *State) worthWaiting(lock namespace.Ref, by namespace.Owner, err error) bool {
	if errors.Is(err, api.LockDelayed) {
		return true
	}
	node, gone := s.Tree.Resolve(lock)
	return errors.Is(err, api.LockHeld) && gone == nil && !node.Holds(by)
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
