package master

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// The tree is limited to the replica's memory: a change that makes it heavier than maxWeight is refused. The
// log does not know the memory, so the master decides, and the log records the refusal.
//
// Changes are checked before the proposal. Those on their way to the log, up to limits.pending, may exceed
// the bound.

// operatorsShare is the part of the bound that operators may use beyond it, for repairs.
const operatorsShare = 16

// checkRoom returns why there is no room for a session's change, or nil. A change that adds nothing always has
// room.
func (co *coherence) checkRoom(by api.SessionID, c raftfsm.Command) *refusal.Refusal {
	most := mostGrowth(c)
	if co.maxWeight == 0 || most == 0 {
		return nil
	}
	state := co.epoch.state()
	weight := state.Tree.Counts().Weight()
	if weight+most <= co.maxWeight {
		return nil
	}
	allowed := co.maxWeight
	if state.PermitOperator(co.epoch.principal(by)) == nil {
		allowed += co.maxWeight / operatorsShare
	}
	growth, refused := state.Growth(c)
	switch {
	case refused != nil: // commands on their way might allow it, unweighed
		return refused
	case growth <= 0 || weight+growth <= allowed:
		return nil
	}
	return co.full(weight, allowed, growth)
}

// checkRestore returns why there is no room for more of a backup, or nil. The part that has arrived may not
// exceed the operators' bound: it is held beside the tree that it replaces.
func (co *coherence) checkRestore(c raftfsm.Restore) *refusal.Refusal {
	weight, allowed := co.epoch.state().RestoreWeight(), co.maxWeight+co.maxWeight/operatorsShare
	if co.maxWeight == 0 || c.Add == nil || weight <= allowed {
		return nil
	}
	return co.full(weight, allowed, 0)
}

func (co *coherence) full(used, allowed, more int64) *refusal.Refusal {
	cause := refusal.CellFull
	if co.epoch.state().Level < cause.Level() {
		cause = refusal.ByteQuotaBelow // of the root, which every version knows
	}
	return &refusal.Refusal{Cause: cause, Used: used, Allowed: allowed, More: more}
}

// mostGrowth returns the max weight that a command can add to the tree.
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

// The max weight of a node without its contents, and of the names in it that may change.
const (
	mostOfNames = 3 * api.MaxACLName
	mostOfNode  = namespace.NodeWeight + api.MaxPath + mostOfNames + api.MaxPrincipal
)

// mostOfContents returns the weight of contents that are an access control list.
func mostOfContents(contents []byte) int64 { return namespace.ListWeight * int64(len(contents)) }
