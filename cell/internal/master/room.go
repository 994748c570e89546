package master

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// room keeps the tree as small as the replica's memory wants it: a change that makes it weigh more than max is refused. How much memory
// there is, the log does not know, so the master decides, and the log records the refusal as the answer of the request.
//
// It is looked at before a change is proposed. What is on its way to the log then, up to limits.pending, may exceed the bound.
type room struct {
	epoch *epoch
	max   int64 // of namespace.Counts.Weight; 0: no bound
}

// operatorsShare is the part of the bound that operators may use beyond it, so that a full cell can be mended.
const operatorsShare = 16

// check returns why there is no room for a change of a session, or nil. What makes nothing larger always has room.
func (r room) check(by api.SessionID, c raftfsm.Command) *refusal.Refusal {
	most := mostGrowth(c)
	if r.max == 0 || most == 0 {
		return nil
	}
	state := r.epoch.state()
	weight := state.Tree.Counts().Weight()
	if weight+most <= r.max {
		return nil
	}
	allowed := r.max
	if state.PermitOperator(r.epoch.principal(by)) == nil {
		allowed += r.max / operatorsShare
	}
	growth, refused := state.Growth(c)
	switch {
	case refused != nil: // what is on its way to the log might have it done, and nobody would have weighed it
		return refused
	case growth <= 0 || weight+growth <= allowed:
		return nil
	}
	return r.full(weight, allowed, growth)
}

// checkRestore returns why there is no room for more of the backup that is being restored, or nil: what has arrived of it is larger already
// than what operators may have. It is held beside the tree whose place it takes.
func (r room) checkRestore(c raftfsm.Restore) *refusal.Refusal {
	weight, allowed := r.epoch.state().RestoreWeight(), r.max+r.max/operatorsShare
	if r.max == 0 || c.Add == nil || weight <= allowed {
		return nil
	}
	return r.full(weight, allowed, 0)
}

// full is the refusal of more.
func (r room) full(used, allowed, more int64) *refusal.Refusal {
	cause := refusal.CellFull
	if r.epoch.state().Level < cause.Level() {
		cause = refusal.ByteQuotaBelow // of the root, which every version knows
	}
	return &refusal.Refusal{Cause: cause, Used: used, Allowed: allowed, More: more}
}

// mostGrowth returns by how much a command can make the tree weigh more at most.
func mostGrowth(c raftfsm.Command) (most int64) {
	switch {
	case c.Open != nil && c.Open.Create != api.MustExist:
		return mostOfNode + mostOfContents(c.Open.Contents)
	case c.SetContents != nil:
		return mostOfContents(c.SetContents.Contents)
	case c.SetACL != nil:
		return mostOfNames
	case c.Txn != nil:
		for _, o := range c.Txn.Operations {
			most += mostOfContents(o.Contents)
			if !o.Delete {
				most += mostOfNode
			}
		}
	}
	return most
}

// What a node may weigh at most beside its contents, and the names in it that may be changed.
const (
	mostOfNames = 3 * api.MaxACLName
	mostOfNode  = namespace.NodeWeight + api.MaxPath + mostOfNames + api.MaxPrincipal
)

// mostOfContents is what contents weigh if they are an access control list.
func mostOfContents(contents []byte) int64 { return namespace.ListWeight * int64(len(contents)) }
