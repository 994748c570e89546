package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// TxnLevel is the level from which transactions exist.
const TxnLevel = 3

// txn checks all conditions, then does the operations in order. If one is refused, it undoes the earlier ones,
// except for drawn numbers: no client has seen them, and a gap is harmless.
func (s *State) txn(c *Txn, wall int64) Result {
	//mutant: return func(do func() Result) Result { r := do(); _, _, _ = s.Sessions.Begin(c.Mutation); s.Sessions.Finish(c.Mutation, r.Answer); return r }(func() Result {
	return s.once(c.Mutation, nil, func() Result {
		by := c.Mutation.Session
		for i := range c.Conditions {
			if err := s.checkCondition(&c.Conditions[i], s.principal(by)); err != nil {
				//mutant: _ = err
				return refuseStep(i+1, err)
			}
		}
		var r Result
		done := make([]Stat, len(c.Operations))
		tree, past := s.Tree.Snapshot(), s.past.snapshot()
		for i := range c.Operations {
			var err error
			if done[i], err = s.change(&r, by, &c.Operations[i], wall); err != nil {
				//mutant: s.Tree, _ = tree, past
				//mutant: _, s.past = tree, past
				s.Tree, s.past = tree, past
				s.Tree.Edit()
				s.past.edit()
				return refuseStep(len(c.Conditions)+i+1, err)
			}
		}
		if len(done) > 0 {
			r.Written = &done
		}
		return r
	})
}

// refuseStep returns the result of a Txn that failed at a step: its conditions and then its operations, counted
// from 1.
func refuseStep(step int, err error) Result {
	r := refuse(err)
	own := *r.Refusal
	//mutant: _ = step
	own.Step = step
	r.Refusal = &own
	return r
}

// checkCondition returns why a condition fails, or that the principal may not know. A node being removed fails
// every one.
func (s *State) checkCondition(c *Condition, principal string) error {
	if c.Sequencer != nil {
		if err := s.CheckPrecondition(*c.Sequencer); err != nil {
			return err
		}
	}
	if c.Content == nil && c.Instance == 0 && !c.Exists {
		return nil
	}
	if err := s.permitLook(c.Name, principal); err != nil {
		return err
	}
	node, there := s.Tree.Get(c.Name)
	absent := c.Content != nil && *c.Content == 0
	switch {
	case there && node.Dying():
		return &refusal.Refusal{Cause: refusal.ConditionDying, Current: node.Content}
	case absent && there:
		return &refusal.Refusal{Cause: refusal.ConditionPresent, Current: node.Content}
	case absent && (c.Exists || c.Instance != 0), !absent && !there:
		return &refusal.Refusal{Cause: refusal.ConditionAbsent}
	case absent:
		return nil
	case c.Instance != 0 && c.Instance != node.Instance:
		return &refusal.Refusal{Cause: refusal.ConditionRecreated, Generation: c.Instance, Current: node.Content}
	case c.Content != nil && *c.Content != node.Content:
		return &refusal.Refusal{Cause: refusal.ContentsChanged, Generation: *c.Content, Current: node.Content}
	}
	return nil
}

// permitLook returns PermissionDenied unless a principal may know what is at a name: it may read or write the
// node or, if that is missing, the nearest directory above.
func (s *State) permitLook(name api.Name, principal string) error {
	if err := namespace.CheckName(name); err != nil {
		return err
	}
	node, there := s.Tree.Get(name)
	for !there {
		name = name.Parent()
		node, there = s.Tree.Get(name) // the root is always there
	}
	//mutant: if node.Name == "" || node.Kind != api.File { return nil }; err := s.Tree.Permit(node, principal, namespace.ToRead)
	err := s.Tree.Permit(node, principal, namespace.ToRead)
	if err != nil && s.Tree.Permit(node, principal, namespace.ToWrite) == nil {
		return nil
	}
	return err
}

// change does one operation of a Txn, and adds its visible changes to r. It returns the written file's
// metadata without the name, which the command has; empty for a deletion.
func (s *State) change(r *Result, by api.SessionID, o *Operation, wall int64) (Stat, error) {
	if o.Delete {
		return Stat{}, s.deleteNamed(r, by, o.Name)
	}
	c := Open{Name: o.Name, Create: o.Create, Kind: api.File, Contents: o.Contents, Rights: namespace.ToWrite}
	node, there := s.Tree.Get(o.Name)
	kind := namespace.Written
	var err error
	switch {
	case !there:
		kind = namespace.Added
		node, _, err = s.openOrCreate(&c, namespace.Owner{Session: by}, wall)
	default:
		//mutant: if err = checkExisting(node, c.Create, c.Kind); err == nil {
		if err = s.CheckOpen(by, node, &c); err == nil {
			node, err = s.write(node.Ref(), o.Contents, nil, wall)
		}
	}
	if err != nil {
		return Stat{}, err
	}
	r.Changes = append(r.Changes, s.changed(kind, node.Ref(), node.Content)...)
	written := *stat(s.closeLists(r, node))
	written.Name = ""
	return written, nil
}

// deleteNamed deletes a node for a session without a handle on it, so any holder of its lock is another.
func (s *State) deleteNamed(r *Result, by api.SessionID, name api.Name) error {
	node, there := s.Tree.Get(name)
	if !there || node.Dying() {
		return &refusal.Refusal{Cause: refusal.NodeUnknown}
	}
	if err := s.Tree.Permit(node, s.principal(by), namespace.ToWrite); err != nil {
		return err
	}
	//mutant: holder := namespace.Owner{}; for _, h := range node.Holders { holder = h.Owner }; if err := s.Tree.Delete(node.Ref(), holder); err != nil {
	if err := s.Tree.Delete(node.Ref(), namespace.Owner{}); err != nil {
		return err
	}
	s.removed(r, node)
	return nil
}
