package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// Guard is a sequencer of this cell, as a condition: a command that carries one
// does nothing unless the lock is held in that mode and generation when the
// command's turn in the log has come (Chubby §2.6, SetSequencer).
type Guard struct {
	Lock       api.Name       `cbor:"1,keyasint"`
	Mode       api.LockMode   `cbor:"2,keyasint"`
	Generation api.Generation `cbor:"3,keyasint"`
}

// Stands returns BadSequencer, and why, unless the lock is held in that mode and
// generation by somebody whom nobody is taking it from.
func (s *State) Stands(g Guard) error {
	node, ok := s.Tree.Get(g.Lock)
	switch {
	case !ok:
		return api.Errorf(api.BadSequencer, "the lock's file is gone")
	case len(node.Holders) == 0:
		return api.Errorf(api.BadSequencer, "the lock is not held; its last token was %d", node.Lock)
	case node.Lock != g.Generation:
		return api.Errorf(api.BadSequencer, "the lock has passed on: token %d is not its present one, %d", g.Generation, node.Lock)
	case node.Mode != g.Mode:
		return api.Errorf(api.BadSequencer, "the lock is held in %v mode, not in %v", node.Mode, g.Mode)
	case node.Revoked != "":
		return api.Errorf(api.BadSequencer, "the lock is being taken from its holder: %s", node.Revoked)
	}
	var why string
	for _, h := range node.Holders {
		if holder, ok := s.Sessions.Get(h.Session); ok {
			if why = holder.Doomed; why == "" {
				return nil
			}
		}
	}
	return api.Errorf(api.BadSequencer, "the session that holds the lock is being ended: %s", why)
}

// stand returns the first guard that does not stand.
func (s *State) stand(guards []Guard) error {
	for _, g := range guards {
		if err := s.Stands(g); err != nil {
			return err
		}
	}
	return nil
}

// holders lists who holds a lock.
func holders(n *namespace.Node) []namespace.Owner {
	owners := make([]namespace.Owner, len(n.Holders))
	for i, h := range n.Holders {
		owners[i] = h.Owner
	}
	return owners
}
