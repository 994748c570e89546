package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// Precondition is a sequencer of this cell, as a condition: its command does nothing unless the lock is then
// held in that mode and generation (Chubby §2.6, SetSequencer).
type Precondition struct {
	Lock       api.Name       `cbor:"1,keyasint"`
	Mode       api.LockMode   `cbor:"2,keyasint"`
	Generation api.Generation `cbor:"3,keyasint"`
}

// CheckPrecondition returns BadSequencer, with the reason, unless the lock is held in that mode and generation,
// without a revocation, by a session that is not terminating.
func (s *State) CheckPrecondition(p Precondition) error {
	node, ok := s.Tree.Get(p.Lock)
	switch {
	case !ok:
		return &refusal.Refusal{Cause: refusal.SequencerFileGone}
	case len(node.Holders) == 0:
		return &refusal.Refusal{Cause: refusal.SequencerNotHeld, Current: node.Lock}
	case node.Lock != p.Generation:
		return &refusal.Refusal{Cause: refusal.SequencerPassedOn, Generation: p.Generation, Current: node.Lock}
	case node.Mode != p.Mode:
		return &refusal.Refusal{Cause: refusal.SequencerMode, Mode: node.Mode, Wanted: p.Mode}
	case node.Revoked != nil:
		return &refusal.Refusal{Cause: refusal.SequencerRevoked, By: node.Revoked}
	}
	var by *refusal.Intervention
	for _, h := range node.Holders {
		if holder, ok := s.Sessions.Get(h.Session); ok {
			if by = holder.Terminating; by == nil {
				return nil
			}
		}
	}
	return &refusal.Refusal{Cause: refusal.SequencerTerminating, By: by}
}

func (s *State) checkPreconditions(preconditions []Precondition) error {
	for _, p := range preconditions {
		if err := s.CheckPrecondition(p); err != nil {
			return err
		}
	}
	return nil
}

func holders(n *namespace.Node) []namespace.Owner {
	owners := make([]namespace.Owner, len(n.Holders))
	for i, h := range n.Holders {
		owners[i] = h.Owner
	}
	return owners
}
