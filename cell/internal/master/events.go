package master

import (
	"log/slog"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// The observer publishes events with the log's results: in commit order, after clients can read the change,
// and before its author is answered. Events wait in the mailboxes of the sessions, and the master never waits
// for a mailbox (Chubby §2.5).

// publishChange posts a change to the handles on the node and its directory that want its events. epoch.mu is
// held.
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
		p.tellReaders(c.Parent, api.EventChildModified, &Event{Child: c.Node.Name.Base(), Generation: c.Generation}, c.Node) // only to handles that may read the node
	case namespace.ACLChanged:
		child(api.EventChildModified) // also to handles that may no longer read it
	}
}

// tellHandles posts an event to every handle on a node that was opened for its kind. Names and contents go
// only to principals that may read the node now, whatever they could read at their Open. epoch.mu is held,
// and released in between.
func (p *publisher) tellHandles(ref namespace.Ref, kind api.EventKind, e *Event) {
	p.tellReaders(ref, kind, e, ref)
}

// tellReaders is tellHandles for an event that takes the right to read a second node, too. epoch.mu is held,
// and released in between.
func (p *publisher) tellReaders(ref namespace.Ref, kind api.EventKind, e *Event, other namespace.Ref) {
	needsRead := kind.NeedsRead()
	readers := map[string]bool{} // by principal: whether it may read both nodes
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

// permitSteps is the number of steps of one permission check: a list may include many others.
const permitSteps = 16

// NeedRead reports whether some of the events need the right to read.
func (s EventSet) NeedRead() bool {
	return slices.ContainsFunc(api.EventKinds(), func(kind api.EventKind) bool { return s.Has(kind) && kind.NeedsRead() })
}

// nodeRemoved tells all handles on a node, and answers the waiters for its lock. epoch.mu is held.
func (p *publisher) nodeRemoved(node namespace.Ref) {
	for _, h := range p.handles.onNode[node] {
		p.tellRemoved(h.Owner, node)
		p.epoch.mu.pause(1)
	}
	for _, w := range p.queues.ofNode(node) {
		p.epoch.mu.pause(4) // it changes four tables and wakes the waiter
		p.queues.answerWaiter(w.key(), raftfsm.Answer{Refusal: &refusal.Refusal{Cause: refusal.NodeDeleted}})
	}
}

// tellRemoved tells one handle that its node was deleted. epoch.mu is held.
func (p *publisher) tellRemoved(owner namespace.Owner, node namespace.Ref) {
	p.postTo(owner, node, api.EventHandleInvalid, &Event{
		Generation: node.Instance, Reason: api.ByDeletion, Explanation: "the node was deleted",
	})
}

// tellAcquired tells the handles that watch a lock of a grant. epoch.mu is held.
func (p *publisher) tellAcquired(claim raftfsm.ClaimResult) {
	p.tellHandles(claim.Answer.Lock, api.EventLockAcquired, &Event{Generation: claim.Answer.Generation})
}

// tellVacant ends the holds of locks that a command left without a holder, and tells the handles that watch
// them, except for locks that it granted to the next holder. A vacant lock may still have a lock-delay. The
// result says which locks are vacant, not the state: a later command of the same entry may have granted the
// lock, or taken it from a successor. epoch.mu is held, and released in between.
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

// tellFailOver tells every session of an earlier master that events may be lost, so that clients look again
// (Chubby §2.5, §2.9 step 5). epoch.mu is held.
func (p *publisher) tellFailOver() {
	for _, box := range p.boxes.byID {
		p.epoch.mu.pause(1)
		box.post(&Event{Kind: api.EventMasterFailedOver, Explanation: "a new master has taken over: events may have been lost, look again"})
	}
}
