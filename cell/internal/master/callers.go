package master

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// Caller is who calls: a session, and the epoch it believes in.
type Caller struct {
	Session api.SessionID
	Epoch   api.Epoch
}

// CheckEpoch refuses a caller that knows of a later epoch.
func (s *Sessions) CheckEpoch(who Caller) error {
	if who.Epoch > s.epoch.number {
		return api.Errorf(api.NotMaster, "this replica was master in epoch %d; you have heard of epoch %d", s.epoch.number, who.Epoch)
	}
	return nil
}

// Admit refuses a caller that does not know this epoch, or whose session does not live.
func (s *Sessions) Admit(who Caller) error {
	if err := s.CheckEpoch(who); err != nil {
		return err
	}
	if who.Epoch != s.epoch.number {
		return api.Errorf(api.StaleEpoch, "the call was meant for the master of epoch %d; this is epoch %d: keep the session alive first", who.Epoch, s.epoch.number)
	}
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	if !s.leases.Alive(who.Session) {
		return s.epoch.sessionEnded(who.Session)
	}
	return nil
}

// NodeAt finds the node at a path, for an operator.
func (in *Inspector) NodeAt(ctx context.Context, path api.Path) (namespace.Ref, error) {
	if _, err := in.epoch.fence.Prove(ctx); err != nil {
		return namespace.Ref{}, err
	}
	node, ok := in.epoch.state().Tree.Get(path.Name())
	if !ok {
		return namespace.Ref{}, &refusal.Refusal{Cause: refusal.PathUnknown, Path: path.Parent().String()}
	}
	return node.Ref(), nil
}

// CheckOperator checks that a session's principal may do what concerns the whole
// cell.
func (in *Inspector) CheckOperator(ctx context.Context, who Caller) error {
	if _, err := in.epoch.fence.Prove(ctx); err != nil {
		return err
	}
	tree := in.epoch.state().Tree
	root, ok := tree.Get("")
	if !ok {
		return api.Errorf(api.Corrupt, "the cell has no root")
	}
	return tree.Permit(root, in.epoch.principal(who.Session), namespace.ToChange)
}

// Expire ends a session.
func (s *Sessions) Expire(ctx context.Context, id api.SessionID) error {
	s.epoch.mu.Lock()
	_, known := s.leases.Stop(id)
	s.epoch.mu.Unlock()
	if !known {
		return api.Errorf(api.NotFound, "there is no session %v", id)
	}
	return s.endStopped(ctx, raftfsm.End{Session: id, Reason: api.ByExpiry})
}
