package master

import (
	"bytes"
	"cmp"
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/misuse"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

type txns struct {
	epoch     *epoch
	boxes     *mailboxes
	events    *publisher
	coherence *coherence
}

// Commit does a transaction of an admitted session. The log checks rights. The result of a refused one names
// the step (Refusal.Step), beside the error.
func (t *txns) Commit(ctx context.Context, c *raftfsm.Txn) (raftfsm.Result, error) {
	//mutant: if level := t.epoch.state().Level; level < 0 { //by TestTxnBelowItsLevel of ./cell
	if level := t.epoch.state().Level; level < raftfsm.TxnLevel {
		return raftfsm.Result{}, api.Errorf(api.InvalidArgument, // not Unavailable, for which clients retry
			"transactions need feature level %d, and the cell is at level %d: nothing was done; finish the upgrade of the cell (chubbyctl cell upgrade finish), or change one file at a time", raftfsm.TxnLevel, level)
	}
	command := raftfsm.Command{Txn: c}
	if step, fault := t.checkSpellings(c); fault != nil {
		return raftfsm.Result{Answer: raftfsm.Answer{Refusal: &refusal.Refusal{Step: step}}}, fault
	}
	if len(c.Operations) == 0 { // it changes nothing that clients cache
		result, err := t.epoch.commit(ctx, command, func() {})
		return result, cmp.Or(err, result.Answer.Err())
	}
	t.askBack(ctx, command)
	writing := t.writingOf(c)
	names := make([]api.Name, len(c.Operations))
	for i, o := range c.Operations {
		//mutant: names[i], _ = c.Operations[0].Name, o //by TestTxnLeavesNothingOldInCaches of ./cell
		names[i] = o.Name
	}
	//mutant: result, err := t.coherence.applyChange(ctx, c.Mutation, command) //by TestTxnLeavesNothingOldInCaches of ./cell
	result, err := t.coherence.applyChange(ctx, c.Mutation, command, namesTouched(names...)...)
	if err == nil && len(writing) > 0 {
		t.countWriting(c, writing)
	}
	return result, err
}

// checkSpellings is checkSpelling for the nodes that a transaction may create, unless it was answered. It
// returns the refused step.
func (t *txns) checkSpellings(c *raftfsm.Txn) (step int, fault error) {
	for i, o := range c.Operations {
		if o.Delete {
			continue
		}
		if fault := checkSpelling(t.epoch.state(), o.Name, o.Create); fault != nil && !t.epoch.isAnswered(c.Mutation) {
			return len(c.Conditions) + i + 1, fault
		}
	}
	return 0, nil
}

// askBack recalls kept locks (decision 22) of nodes that a transaction deletes. It does so only if nothing
// else prevents the transaction, so that no holder is asked in vain.
func (t *txns) askBack(ctx context.Context, command raftfsm.Command) {
	c := command.Txn
	for last := 0; ; {
		state := t.epoch.state()
		if !deletesHeld(state, c) || t.epoch.isAnswered(c.Mutation) {
			return
		}
		//mutant: answer := state.Try(raftfsm.Command{Txn: &raftfsm.Txn{Mutation: c.Mutation, Operations: c.Operations[len(c.Operations)-1:]}}); if answer.Refusal != nil { own := *answer.Refusal; own.Step += len(c.Conditions) + len(c.Operations) - 1; answer.Refusal = &own } //by TestTxnAsksNobodyInVain of ./cell
		answer := state.Try(command)
		if answer.Code() != api.LockHeld || answer.Refusal.Step <= last {
			return // the holder of a lock that was asked for is using it
		}
		last = answer.Refusal.Step
		node, there := state.Tree.Get(c.Operations[last-len(c.Conditions)-1].Name)
		if !there || !t.events.awaitRecall(ctx, node.Ref(), namespace.Owner{Session: c.Mutation.Session}, api.Exclusive) {
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

// writingOf returns what to count of each operation once it is done; nil if nothing.
func (t *txns) writingOf(c *raftfsm.Txn) (writing map[int]action) {
	if t.epoch.isAnswered(c.Mutation) {
		return nil
	}
	for i, o := range c.Operations {
		if o.Delete {
			continue
		}
		node, _ := t.epoch.state().Tree.Get(o.Name)
		if what := writingTo(node, o.Contents); what != noAction {
			if writing == nil {
				writing = map[int]action{}
			}
			writing[i] = what
		}
	}
	return writing
}

// writingTo returns what to count of a write to a node, which may be nil.
func writingTo(node *namespace.Node, contents []byte) action {
	switch {
	case len(contents) >= misuse.LargeWrite:
		return actionWriteLarge
	case node != nil && node.Kind == api.File && bytes.Equal(node.Contents, contents):
		return actionWriteSame
	}
	return noAction
}

func (t *txns) countWriting(c *raftfsm.Txn, writing map[int]action) {
	t.epoch.mu.Lock()
	defer t.epoch.mu.Unlock()
	box := t.boxes.byID[c.Mutation.Session]
	if box == nil {
		return
	}
	for i, what := range writing {
		box.usage.count(what, c.Operations[i].Name)
	}
}

// NodeNamed returns the node of a name, or zero, without a proof of leadership.
func (m *Master) NodeNamed(name api.Name) namespace.Ref {
	if node, there := m.epoch.state().Tree.Get(name); there {
		return node.Ref()
	}
	return namespace.Ref{}
}
