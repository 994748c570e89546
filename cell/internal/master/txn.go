package master

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// Commit does a transaction of an admitted session. The log checks rights. The result of a refused one names
// the step (Refusal.Step), beside the error.
func (f *Files) Commit(ctx context.Context, c *raftfsm.Txn) (raftfsm.Result, error) {
	//mutant: if level := f.epoch.state().Level; level < 0 { //by TestTxnBelowItsLevel of ./cell
	if level := f.epoch.state().Level; level < raftfsm.TxnLevel {
		return raftfsm.Result{}, api.Errorf(api.InvalidArgument, // not Unavailable, for which clients retry
			"transactions need feature level %d, and the cell is at level %d: nothing was done; finish the upgrade of the cell (chubbyctl cell upgrade finish), or change one file at a time", raftfsm.TxnLevel, level)
	}
	command := raftfsm.Command{Txn: c}
	if step, fault := checkSpellings(f.epoch, c); fault != nil {
		return raftfsm.Result{Answer: raftfsm.Answer{Refusal: &refusal.Refusal{Step: step}}}, fault
	}
	if len(c.Operations) == 0 { // it changes nothing that clients cache
		return f.epoch.propose(ctx, command, nil)
	}
	askBack(ctx, f.events, command)
	names := make([]api.Name, len(c.Operations))
	for i, o := range c.Operations {
		//mutant: names[i], _ = c.Operations[0].Name, o //by TestTxnLeavesNothingOldInCaches of ./cell
		names[i] = o.Name
	}
	//mutant: return f.coherence.applyChange(ctx, c.Mutation, command, nil) //by TestTxnLeavesNothingOldInCaches of ./cell
	return f.coherence.applyChange(ctx, c.Mutation, command, nil, namesTouched(names...)...)
}

// checkSpellings is checkSpelling for the nodes that a transaction may create, unless it was answered. It
// returns the refused step.
func checkSpellings(e *epoch, c *raftfsm.Txn) (step int, fault error) {
	for i, o := range c.Operations {
		if o.Delete {
			continue
		}
		if fault := checkSpelling(e.state(), o.Name, o.Create); fault != nil && !e.isAnswered(c.Mutation) {
			return len(c.Conditions) + i + 1, fault
		}
	}
	return 0, nil
}

// askBack recalls kept locks (decision 22) of nodes that a transaction deletes. It does so only if nothing
// else prevents the transaction, so that no holder is asked in vain.
func askBack(ctx context.Context, p *publisher, command raftfsm.Command) {
	c := command.Txn
	for last := 0; ; {
		state := p.epoch.state()
		if !deletesHeld(state, c) || p.epoch.isAnswered(c.Mutation) {
			return
		}
		//mutant: answer := state.Try(raftfsm.Command{Txn: &raftfsm.Txn{Mutation: c.Mutation, Operations: c.Operations[len(c.Operations)-1:]}}); if answer.Refusal != nil { own := *answer.Refusal; own.Step += len(c.Conditions) + len(c.Operations) - 1; answer.Refusal = &own } //by TestTxnAsksNobodyInVain of ./cell
		answer := state.Try(command)
		if answer.Code() != api.LockHeld || answer.Refusal.Step <= last {
			return // the holder of a lock that was asked for is using it
		}
		last = answer.Refusal.Step
		node, there := state.Tree.Get(c.Operations[last-len(c.Conditions)-1].Name)
		if !there || !p.awaitRecall(ctx, node.Ref(), namespace.Owner{Session: c.Mutation.Session}, api.Exclusive) {
			return
		}
	}
}

// deletesHeld reports whether a transaction deletes a node whose lock is held.
func deletesHeld(state *raftfsm.State, c *raftfsm.Txn) bool {
	for _, o := range c.Operations {
		if !o.Delete {
			continue
		}
		if node, there := state.Tree.Get(o.Name); there && len(node.Holders) > 0 {
			return true
		}
	}
	return false
}
