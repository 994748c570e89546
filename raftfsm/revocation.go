package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// permitBreak returns nil if a principal may take a lock away from its holders: it may change the ACL of the
// node, or the list of operators admits it. The right to the root's ACL is not enough: it may be everybody's, and a
// directory below closed to them. The refusal is that of the node.
func (s *State) permitBreak(node *namespace.Node, principal string) error {
	err := s.Tree.Permit(node, principal, namespace.ToChange)
	if err != nil && s.HasOperators() && s.PermitOperator(principal) == nil {
		return nil
	}
	return err
}

// PermitBreak reports whether a principal may take a node's lock away from its holders.
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
		r := Result{Revoked: []namespace.Revocation{{Lock: c.Lock, Generation: node.Lock, Holders: holders(node), By: *node.Revoked, Reason: api.ByBreak}}}
		if c.Now {
			s.evicted(&r, s.Tree.Evict(c.Lock, node.Lock, holders(node)), c.Successions, wall)
		}
		return r
	})
}

// evict takes a revoked lock from holders that have acknowledged the revocation.
func (s *State) evict(c *Evict, wall int64) Result {
	var r Result
	s.evicted(&r, s.Tree.Evict(c.Lock, c.Generation, c.Holders), c.Successions, wall)
	return r
}

// evicted hands on the locks that an eviction freed.
func (s *State) evicted(r *Result, d namespace.Dropped, successions []Succession, wall int64) {
	r.Left = append(r.Left, s.remember(d.Left, ended{api.ByBreak, wall})...)
	r.Free, r.Vacant, r.Dying = append(r.Free, d.Free...), append(r.Vacant, d.Vacant...), append(r.Dying, d.Dying...)
	s.handOver(r, successions, wall)
}

// terminate begins to end another client's session: the sequencers of its locks become invalid, and
// its requests are refused. A client may terminate the sessions of its own principal, and an operator
// all sessions.
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
