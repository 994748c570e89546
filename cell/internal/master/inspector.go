package master

import (
	"context"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// Inspector shows operators what the master knows.
type Inspector struct {
	Backups     *Backups
	CheckPoints *CheckPoints

	epoch    *epoch
	tables   *tables
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
