package master

import (
	"log/slog"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// Events are published while the log's results are observed: in commit order,
// after what they tell of can be read, and before its author is answered. They
// wait in the mailboxes of the sessions, which nobody ever waits for (Chubby
// §2.5).

// publishChange tells of a change whoever has the node, or its directory, open for
// events of it. epoch.mu is held.
func (p *publisher) publishChange(c namespace.Change) {
	if !p.copyset.isChanging(c.Node.Name) {
		p.epoch.journal.say(slog.LevelError, "a node changed although it could be cached: this is a bug",
			slog.String("event", "bug"), slog.String("path", p.epoch.path(c.Node.Name)), slog.Any("change", c.Kind))
	}
	child := func(kind api.EventKind) {
		p.tellHandles(c.Parent, kind, &Event{Child: c.Node.Name.Base(), Generation: c.Generation})
	}
	switch c.Kind {
	case namespace.Added:
		child(api.EventChildAdded)
	case namespace.Removed:
		p.nodeRemoved(c.Node)
		child(api.EventChildRemoved)
	case namespace.Written:
		p.tellHandles(c.Node, api.EventContentsModified, &Event{Generation: c.Generation})
		p.tellReaders(c.Parent, api.EventChildModified, &Event{Child: c.Node.Name.Base(), Generation: c.Generation}, c.Node) // only those who may read it are told of it
	case namespace.ACLChanged:
		child(api.EventChildModified) // also to those who may not read it any more
	}
}

// tellHandles posts an event to every handle on a node that was opened for its kind.
// Names and contents are for those only who may read the node now, whatever they
// were allowed when they opened it. epoch.mu is held, and released in between.
func (p *publisher) tellHandles(ref namespace.Ref, kind api.EventKind, e *Event) {
	p.tellReaders(ref, kind, e, ref)
}

// tellReaders is tellHandles for an event that is for those only who may read another node, too. epoch.mu is held, and released in between.
func (p *publisher) tellReaders(ref namespace.Ref, kind api.EventKind, e *Event, other namespace.Ref) {
	needsRead := kind.NeedsRead()
	readers := map[string]bool{} // principals, and whether they may read the nodes: each is asked about once
	tree := p.epoch.state().Tree
	reads := func(principal string, ref namespace.Ref) bool {
		node, err := tree.Resolve(ref)
		return err == nil && tree.Permit(node, principal, namespace.ToRead) == nil
	}
	for _, h := range p.handles.onNode[ref] {
		p.epoch.mu.pause(1)
		h.known = known{}
		if !h.Events.Has(kind) {
			continue
		}
		if needsRead {
			may, asked := readers[h.principal]
			if !asked {
				may = reads(h.principal, ref) && (other == ref || reads(h.principal, other))
				readers[h.principal] = may
				//mutant: delete(readers, h.principal); p.epoch.mu.steps = 0
				p.epoch.mu.pause(permitSteps)
			}
			if !may {
				continue
			}
		}
		p.postTo(h.Owner, ref, kind, e)
	}
}

// permitSteps is how many steps it may take to ask whether a principal may read a
// node: a list may include many others.
const permitSteps = 16

// NeedRead reports whether some of the events need the right to read.
func (s EventSet) NeedRead() bool {
	return slices.ContainsFunc(api.EventKinds(), func(kind api.EventKind) bool { return s.Has(kind) && kind.NeedsRead() })
}

// nodeRemoved tells everybody who has the node open, and those who wait for its
// lock. epoch.mu is held.
func (p *publisher) nodeRemoved(node namespace.Ref) {
	for _, h := range p.handles.onNode[node] {
		p.tellRemoved(h.Owner, node)
		p.epoch.mu.pause(1)
	}
	for _, w := range p.queues.ofNode(node) {
		p.epoch.mu.pause(4) // four tables are changed, and the waiter is woken
		p.queues.answerWaiter(w.key(), raftfsm.Answer{Refusal: &refusal.Refusal{Cause: refusal.NodeDeleted}})
	}
}

// tellRemoved tells one of them. epoch.mu is held.
func (p *publisher) tellRemoved(owner namespace.Owner, node namespace.Ref) {
	p.postTo(owner, node, api.EventHandleInvalid, &Event{
		Generation: node.Instance, Reason: api.ByDeletion, Explanation: "the node was deleted",
	})
}

// tellAcquired tells those who watch a lock that somebody has it. epoch.mu is held.
func (p *publisher) tellAcquired(claim raftfsm.ClaimResult) {
	p.tellHandles(claim.Answer.Lock, api.EventLockAcquired, &Event{Generation: claim.Answer.Generation})
}

// tellVacant notes which locks a command has left without a holder, and tells those who
// watch them: not of those that it has given to the next. One need not be to be had: see
// lock-delay. The state does not say it, for a later command of the same entry may have
// given the lock to somebody, or have taken it from a successor. epoch.mu is held, and
// released in between.
func (p *publisher) tellVacant(r raftfsm.Result) {
	if len(r.Vacant) == 0 {
		return
	}
	handedOn := map[namespace.Ref]bool{}
	for _, claim := range r.Claims {
		if !claim.Pending && claim.Answer.Code() == api.OK {
			handedOn[claim.Answer.Lock] = true
		}
	}
	for _, v := range r.Vacant {
		p.recalls.end(v.Lock)
		if !handedOn[v.Lock] {
			p.holdTimes.endHold(v.Lock.Name, p.epoch.clock())
			p.tellHandles(v.Lock, api.EventLockVacant, &Event{Generation: v.Generation})
		}
		p.epoch.mu.pause(1)
	}
}

// tellFailOver tells every session that outlived the master before this one:
// events may have been lost with that, so clients look again (Chubby §2.5, §2.9
// step 5). epoch.mu is held.
func (p *publisher) tellFailOver() {
	for _, box := range p.boxes.byID {
		p.epoch.mu.pause(1)
		box.post(&Event{Kind: api.EventMasterFailedOver, Explanation: "a new master has taken over: events may have been lost, look again"})
	}
}
