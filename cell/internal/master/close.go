package master

import (
	"context"
	"slices"

	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// Close closes a handle and releases what it holds. A closed handle or a removed node is no error (Chubby
// §2.6). The replicated state says what the handle holds. The table drops the handle when the command has
// committed. If it holds nothing, no entry is needed.
func (f *Files) Close(ctx context.Context, mutation session.Mutation, h Handle) error {
	if !f.closesLogged(mutation, h) {
		if _, err := f.epoch.fence.Prove(ctx); err != nil {
			return err
		}
		if f.closeHere(mutation, h) {
			return nil
		}
	}
	_, err := f.offers.propose(ctx, func(mu hold) raftfsm.Command {
		//mutant: f.handles.close(h.Owner)
		mu.pause(f.queues.stepsOf(h.Node.Name))
		f.queues.closing[h.Owner]++
		next := f.offers.successorsOf(h.Node, func(n *namespace.Node) bool { return n.Holds(h.Owner) })
		return raftfsm.Command{Close: &raftfsm.Close{Mutation: mutation, Node: h.Node, Handle: h.Owner.Handle, Successions: next}}
	})
	return err
}

// closesLogged reports whether a Close needs an entry: the handle holds something, or a pending entry may
// give it something. It enters an earlier epoch's handle, so that it stays closed.
func (f *Files) closesLogged(mutation session.Mutation, h Handle) bool {
	f.epoch.mu.Lock()
	defer f.epoch.mu.Unlock()
	return f.mayHold(mutation, h)
}

func (f *Files) mayHold(mutation session.Mutation, h Handle) bool {
	if f.boxes.byID[h.Owner.Session] == nil {
		return true // the log says how the session ended
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
	f.closeHandle(h.Owner)
	return true
}

// closeHandle drops a handle, and counts that. epoch.mu is held.
func (f *Files) closeHandle(owner namespace.Owner) {
	if f.handles.close(owner) {
		f.epoch.reports.usages.ofSession[owner.Session].count(countCloses, "")
	}
}

// refuseHandle refuses to lock through a handle that is closed, or will be by a Close on its way: no later
// command would release the lock. epoch.mu is held.
func (f *Files) refuseHandle(owner namespace.Owner) *refusal.Refusal {
	if one := f.handles.find(owner); one == nil || !one.open || f.queues.isClosing(owner) {
		return &refusal.Refusal{Cause: refusal.HandleClosedWhileAsked}
	}
	return nil
}

// handleClosed drops a closed handle, and has the log refuse its waiters. They are answered after that: else
// the next master would recreate the handle for a late copy, and grant a lock whose request was refused.
func (f *Files) handleClosed(mu hold, owner namespace.Owner) {
	f.closeHandle(owner)
	for w := range f.queues.ofHandle(owner) {
		if w.refusal == nil { // else another Close came first, and the log is being asked
			w.refusal = &refusal.Refusal{Cause: refusal.HandleClosedWhileWaiting}
		}
		f.offers.askLog(w)
		mu.pause(4) // it makes and hands over a proposal
	}
}
