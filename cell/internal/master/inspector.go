package master

import (
	"context"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// Inspector shows operators what the master knows.
type Inspector struct {
	Backups     *Backups
	CheckPoints *CheckPoints

	epoch    *epoch
	tables   *tables.Tables
	sessions *Sessions
	locks    *Locks

	viewer string // asking principal; "" may see everything

	pages chan struct{} // full while maxPages are being made
}

// beginPage waits until a page may be made; call done after that. The proof of leadership comes first: it may
// take seconds.
func (in *Inspector) beginPage(ctx context.Context) (done func(), err error) {
	if _, err := in.epoch.fence.Prove(ctx); err != nil {
		return nil, err
	}
	select {
	case in.pages <- struct{}{}:
		return func() { <-in.pages }, nil
	case <-ctx.Done():
		return nil, &api.Error{
			Code: api.Unavailable, Err: context.Cause(ctx),
			Message: fmt.Sprintf("the call ended while it waited for other listings, of which %d are made at a time; try again", maxPages),
		}
	case <-in.epoch.ctx.Done():
		return nil, context.Cause(in.epoch.ctx)
	}
}

// NodeAt returns the node at a path, for an operator.
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

// CheckOperator checks that a session's principal may administer the cell.
func (in *Inspector) CheckOperator(ctx context.Context, who Caller) error {
	if _, err := in.epoch.fence.Prove(ctx); err != nil {
		return err
	}
	return in.epoch.state().PermitOperator(in.epoch.principal(who.Session))
}

// For returns an Inspector that shows a principal what it may see: locks of nodes it may read, or could if
// they existed; its own sessions and quotas; everything, for operators. "" sees everything, without
// authentication.
func (in *Inspector) For(principal string) *Inspector {
	view := *in
	view.viewer = principal
	return &view
}

func (in *Inspector) sightOf(state *raftfsm.State) sight {
	all := in.viewer == "" || state.PermitOperator(in.viewer) == nil
	return sight{tree: state.Tree, principal: in.viewer, all: all}
}

// Named is a path that a session has named.
type Named struct {
	By   api.SessionID
	Path api.Path
}

// Withhold returns the error that a session gets about a path it named. Without rights there, all refusals
// are the same, with or without a node. A right to a directory shows all errors in it.
func (in *Inspector) Withhold(n Named, err error) error {
	if !saysWhatIsAt(n.Path.Name(), err) {
		return err
	}
	state, principal := in.epoch.state(), in.epoch.principal(n.By)
	if mayKnow(state, principal, n.Path.Name()) {
		return err
	}
	final := false
	if e := (*api.Error)(nil); errors.As(err, &e) {
		final = e.Final
	}
	return &api.Error{
		Code: api.PermissionDenied, Path: n.Path.String(), Final: final,
		Message: fmt.Sprintf("%q has no right here, neither to this node, if there is one, nor to the directory that it is or would be in: ask who administers the cell to name you in a list that gives one (chubbyctl acl get shows the lists of a node to those who may read it, and acl file put changes one)", principal),
	}
}
