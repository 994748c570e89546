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
func (m *master) checkEpoch(who caller) error {
	if who.epoch > m.epoch {
		return api.Errorf(api.NotMaster, "this replica was master in epoch %d; you have heard of epoch %d", m.epoch, who.epoch)
	}
	return nil
}

// admit refuses a caller that does not know this epoch, or whose session does not live.
func (m *master) admit(who caller) error {
	if err := m.checkEpoch(who); err != nil {
		return err
	}
	if who.epoch != m.epoch {
		return api.Errorf(api.StaleEpoch, "the call was meant for the master of epoch %d; this is epoch %d: keep the session alive first", who.epoch, m.epoch)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.leases.Alive(who.session) {
		return m.ended(who.session)
	}
	return nil
}

// nodeAt finds the node at a path, for an operator.
func (m *master) nodeAt(ctx context.Context, path api.Path) (namespace.Ref, error) {
	if _, err := m.fence.prove(ctx); err != nil {
		return namespace.Ref{}, err
	}
	node, ok := m.state().Tree.Get(path.Name())
	if !ok {
		return namespace.Ref{}, api.Errorf(api.NotFound, "there is no such node; see chubbyctl ls %s", path.Parent())
	}
	return node.Ref(), nil
}

// checkOperator checks that a session's principal may do what concerns the whole
// cell.
func (m *master) checkOperator(ctx context.Context, who caller) error {
	if _, err := m.fence.prove(ctx); err != nil {
		return err
	}
	tree := m.state().Tree
	root, ok := tree.Get("")
	if !ok {
		return api.Errorf(api.Corrupt, "the cell has no root")
	}
	return tree.Permit(root, m.principal(who.session), namespace.ToChange)
}

// expire ends a session.
func (m *master) expire(ctx context.Context, id api.SessionID) error {
	m.mu.Lock()
	_, known := m.leases.Stop(id)
	m.mu.Unlock()
	if !known {
		return api.Errorf(api.NotFound, "there is no session %v", id)
	}
	return m.endNow(ctx, raftfsm.End{Session: id, Reason: api.ByExpiry})
}
