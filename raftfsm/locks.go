package raftfsm

import (
	"errors"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
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

// permitBreak returns nil if a principal may take a lock away: it may change the node's ACL, or is on the list
// of operators. The right to the root's ACL is not enough: everybody may have it, and a directory below may be
// closed.
func (s *State) permitBreak(node *namespace.Node, principal string) error {
	err := s.Tree.Permit(node, principal, namespace.ToChange)
	if err != nil && s.HasOperators() && s.PermitOperator(principal) == nil {
		return nil
	}
	return err
}

// PermitBreak reports whether a principal may take a node's lock away.
func (s *State) PermitBreak(node *namespace.Node, principal string) bool {
	return s.permitBreak(node, principal) == nil
}

// revoke begins to take a lock away (decision 10).
func (s *State) revoke(c *Revoke, wall int64) Result {
	return s.once(c.Mutation, nil, func() Result {
		by := s.principal(c.Mutation.Session)
		node, err := s.Tree.Resolve(c.Lock)
		if err == nil {
			err = s.permitBreak(node, by)
		}
		if err == nil {
			node, err = s.Tree.Revoke(c.Lock, refusal.Intervention{Principal: by, Why: c.Why})
		}
		if err != nil {
			return refuse(err)
		}
		var r Result
		if c.Now {
			r = s.letGo(s.Tree.Evict(c.Lock, node.Lock, holders(node)), api.ByBreak, c.Successions, wall)
		}
		r.Revoked = []namespace.Revocation{{Lock: c.Lock, Generation: node.Lock, Holders: holders(node), By: *node.Revoked, Reason: api.ByBreak}}
		return r
	})
}

// terminate begins to end another client's session: its locks' sequencers become invalid, and its requests are
// rejected. A client may terminate its own principal's sessions, an operator all.
func (s *State) terminate(c *Terminate) Result {
	return s.once(c.Mutation, nil, func() Result {
		by := s.principal(c.Mutation.Session)
		target, ok := s.Sessions.Get(c.Target)
		if !ok {
			return refuse(&refusal.Refusal{Cause: refusal.TargetUnknown, Session: c.Target})
		}
		if err := s.PermitOperator(by); err != nil && by != target.Principal {
			return refuse(err)
		}
		if err := s.Sessions.Terminate(c.Target, refusal.Intervention{Principal: by, Why: c.Why}); err != nil {
			return refuse(err)
		}
		return Result{Terminating: []api.SessionID{c.Target}}
	})
}
