package cell

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
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
