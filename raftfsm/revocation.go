package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

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
