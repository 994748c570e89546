package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// Precondition is a sequencer of this cell, as a condition: a command that carries one
// does nothing unless the lock is held in that mode and generation when the
// command is applied (Chubby §2.6, SetSequencer).
type Precondition struct {
	Lock       api.Name       `cbor:"1,keyasint"`
	Mode       api.LockMode   `cbor:"2,keyasint"`
	Generation api.Generation `cbor:"3,keyasint"`
}

// CheckPrecondition returns BadSequencer, and why, unless the lock is held in that mode
// and generation, is not being revoked, and one of its holders is not being terminated.
func (s *State) CheckPrecondition(p Precondition) error {
	node, ok := s.Tree.Get(p.Lock)
	switch {
	case !ok:
		return api.Errorf(api.BadSequencer, "the lock's file is gone")
	case len(node.Holders) == 0:
		return api.Errorf(api.BadSequencer, "the lock is not held; its last token was %d", node.Lock)
	case node.Lock != p.Generation:
		return api.Errorf(api.BadSequencer, "the lock has passed on: token %d is not its present one, %d", p.Generation, node.Lock)
	case node.Mode != p.Mode:
		return api.Errorf(api.BadSequencer, "the lock is held in %v mode, not in %v", node.Mode, p.Mode)
	case node.Revoked != "":
		return api.Errorf(api.BadSequencer, "the lock is being taken from its holder: %s", node.Revoked)
	}
	var why string
	for _, h := range node.Holders {
		if holder, ok := s.Sessions.Get(h.Session); ok {
			if why = holder.Terminating; why == "" {
				return nil
			}
		}
	}
	return api.Errorf(api.BadSequencer, "the session that holds the lock is being ended: %s", why)
}

// checkPreconditions returns the error of the first precondition that is not met.
func (s *State) checkPreconditions(preconditions []Precondition) error {
	for _, p := range preconditions {
		if err := s.CheckPrecondition(p); err != nil {
			return err
		}
	}
	return nil
}

// holders lists the handles that hold a lock.
func holders(n *namespace.Node) []namespace.Owner {
	owners := make([]namespace.Owner, len(n.Holders))
	for i, h := range n.Holders {
		owners[i] = h.Owner
	}
	return owners
}
