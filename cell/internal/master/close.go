package master

import (
	"context"
	"slices"

	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// Close closes a handle and gives up what it holds. It does not fail for a handle
// that is closed already, or whose node is gone (Chubby §2.6). What it holds is
// what the replicated state says, whatever the table of handles knows; the handle
// is out of the table when that has committed. If there is nothing to give up, it
// closes the handle without the log.
func (f *Files) Close(ctx context.Context, mutation session.Mutation, h Handle) error {
	if !f.closesLogged(mutation, h) {
		if _, err := f.epoch.fence.Prove(ctx); err != nil {
			return err
		}
		if f.closeHere(mutation, h) {
			return nil
		}
	}
	_, err := f.epoch.proposeBuilt(ctx, func() raftfsm.Command {
		//mutant: f.handles.close(h.Owner)
		f.epoch.mu.pause(f.queues.stepsOf(h.Node.Name))
		f.queues.closing[h.Owner]++
		next := f.offers.successorsOf(h.Node, func(n *namespace.Node) bool { return n.Holds(h.Owner) })
		return raftfsm.Command{Close: &raftfsm.Close{Mutation: mutation, Node: h.Node, Handle: h.Owner.Handle, Successions: next}}
	})
	return err
}

// closesLogged reports whether a Close needs an entry: because the handle holds
// something, or may by the time an entry that is on its way is done. The handle is
// entered if it is of an earlier epoch, so that it stays closed.
func (f *Files) closesLogged(mutation session.Mutation, h Handle) bool {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	return f.mayHold(mutation, h)
}

func (f *Files) mayHold(mutation session.Mutation, h Handle) bool {
	if f.boxes.byID[h.Owner.Session] == nil {
		return true // the log says what became of the session
	}
	f.handles.declare(mutation)
	one, err := f.handles.get(h, f.epoch.number, f.epoch.principal(h.Owner.Session))
	if err == nil && one.locks || f.epoch.isAnswered(mutation) {
		return true
	}
	node, gone := f.epoch.state().Tree.Resolve(h.Node)
	//mutant: _, _ = gone, slices.Contains(node.Openers, h.Owner); return false
	return gone == nil && (node.Holds(h.Owner) || slices.Contains(node.Openers, h.Owner))
}

// closeHere closes a handle that holds nothing.
func (f *Files) closeHere(mutation session.Mutation, h Handle) bool {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	if f.mayHold(mutation, h) {
		return false
	}
	f.handles.close(h.Owner)
	return true
}

// refuseHandle refuses to lock through a handle that is closed, or that a command
// which is on its way closes before anything that is handed over from now on is
// done: what such a handle held nobody would give up. epoch.mu is held.
func (f *Files) refuseHandle(owner namespace.Owner) *refusal.Refusal {
	if one := f.handles.find(owner); one == nil || !one.open || f.queues.isClosing(owner) {
		return &refusal.Refusal{Cause: refusal.HandleClosedWhileAsked}
	}
	return nil
}

// handleClosed takes a handle out of the table whose Close has committed, and
// has those refused who waited through it. They are told when the log has refused them:
// the next master would recreate the handle for a late copy of their requests, and
// grant the lock to somebody who was told that it has none. epoch.mu is held, and released
// in between.
func (f *Files) handleClosed(owner namespace.Owner) {
	f.handles.close(owner)
	for w := range f.queues.ofHandle(owner) {
		if w.refusal == nil { // else another copy of the Close came first, and the log is being asked
			w.refusal = &refusal.Refusal{Cause: refusal.HandleClosedWhileWaiting}
		}
		f.offers.askLog(w)
		f.epoch.mu.pause(4) // a proposal is made, and handed over
	}
}
