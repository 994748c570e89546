package cell

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// caller is who calls: a session, and the epoch it believes in.
type caller struct {
	session api.SessionID
	epoch   api.Epoch
}

// checkEpoch refuses a caller that knows of a later epoch.
func (s *Sessions) checkEpoch(who caller) error {
	if who.epoch > s.epoch.number {
		return api.Errorf(api.NotMaster, "this replica was master in epoch %d; you have heard of epoch %d", s.epoch.number, who.epoch)
	}
	return nil
}

// admit refuses a caller that does not know this epoch, or whose session does not live.
func (s *Sessions) admit(who caller) error {
	if err := s.checkEpoch(who); err != nil {
		return err
	}
	if who.epoch != s.epoch.number {
		return api.Errorf(api.StaleEpoch, "the call was meant for the master of epoch %d; this is epoch %d: keep the session alive first", who.epoch, s.epoch.number)
	}
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	if !s.leases.Alive(who.session) {
		return s.epoch.ended(who.session)
	}
	return nil
}

// nodeAt finds the node at a path, for an operator.
func (in *Inspector) nodeAt(ctx context.Context, path api.Path) (namespace.Ref, error) {
	if _, err := in.epoch.fence.prove(ctx); err != nil {
		return namespace.Ref{}, err
	}
	node, ok := in.epoch.state().Tree.Get(path.Name())
	if !ok {
		return namespace.Ref{}, api.Errorf(api.NotFound, "there is no such node; see chubbyctl ls %s", path.Parent())
	}
	return node.Ref(), nil
}

// checkOperator checks that a session's principal may do what concerns the whole
// cell.
func (in *Inspector) checkOperator(ctx context.Context, who caller) error {
	if _, err := in.epoch.fence.prove(ctx); err != nil {
		return err
	}
	tree := in.epoch.state().Tree
	root, ok := tree.Get("")
	if !ok {
		return api.Errorf(api.Corrupt, "the cell has no root")
	}
	return tree.Permit(root, in.epoch.principal(who.session), namespace.ToChange)
}

// expire ends a session.
func (s *Sessions) expire(ctx context.Context, id api.SessionID) error {
	s.epoch.mu.Lock()
	_, known := s.leases.Stop(id)
	s.epoch.mu.Unlock()
	if !known {
		return api.Errorf(api.NotFound, "there is no session %v", id)
	}
	return s.endNow(ctx, raftfsm.End{Session: id, Reason: api.ByExpiry})
}
