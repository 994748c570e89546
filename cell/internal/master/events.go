package master

import (
	"log/slog"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// The observer publishes events in commit order: after the change can be read, and before its author has the
// answer. They wait in mailboxes, and the master never waits for those (Chubby §2.5).

// publisher puts events into the mailboxes of the sessions they concern.
type publisher struct {
	epoch   *epoch
	boxes   *mailboxes
	handles *handles
	queues  *queues
	recalls recalls
	copyset *copyset
}

// postTo posts a copy of an event about a handle to its session. It returns the event's number, 0 without a
// mailbox. epoch.mu is held.
func (p *publisher) postTo(to namespace.Owner, ref namespace.Ref, kind api.EventKind, e *Event) uint64 {
	box := p.boxes.byID[to.Session]
	if box == nil {
		return 0
	}
	return box.post(&Event{
		Kind: kind, Handle: to.Handle, Path: p.epoch.path(ref.Name), Child: e.Child,
		Generation: e.Generation, Reason: e.Reason, Explanation: e.Explanation, Recall: e.Recall,
	})
}

// publishChange posts a change to handles on the node and its directory.
func (p *publisher) publishChange(mu hold, c namespace.Change) {
	if !p.copyset.isChanging(c.Node.Name) {
		p.epoch.reports.journal.say(slog.LevelError, "a node changed although it could be cached: this is a bug",
			slog.String("event", "bug"), slog.String("path", p.epoch.path(c.Node.Name)), slog.Any("change", c.Kind))
	}
	child := func(kind api.EventKind) {
		p.tellHandles(mu, c.Parent, kind, &Event{Child: c.Node.Name.Base(), Generation: c.Generation})
	}
	switch c.Kind {
	case namespace.Added:
		child(api.EventChildAdded)
	case namespace.Removed:
		p.nodeRemoved(mu, c.Node)
		child(api.EventChildRemoved)
	case namespace.Written:
		p.tellHandles(mu, c.Node, api.EventContentsModified, &Event{Generation: c.Generation})
		p.tellReaders(mu, c.Parent, api.EventChildModified, &Event{Child: c.Node.Name.Base(), Generation: c.Generation}, c.Node) // only to handles that may read the node
	case namespace.ACLChanged:
		child(api.EventChildModified) // also to handles that may not read it now
	}
}

// tellHandles posts an event to the handles on a node that were opened for its kind. Names and contents go
// only to principals that may read the node now, whatever they might at Open.
func (p *publisher) tellHandles(mu hold, ref namespace.Ref, kind api.EventKind, e *Event) {
	p.tellReaders(mu, ref, kind, e, ref)
}

// tellReaders is tellHandles for an event that takes the right to read a second node, too.
func (p *publisher) tellReaders(mu hold, ref namespace.Ref, kind api.EventKind, e *Event, other namespace.Ref) {
	needsRead := kind.NeedsRead()
	readers := map[string]bool{} // whether a principal may read both nodes
	tree := p.epoch.state().Tree
	reads := func(principal string, ref namespace.Ref) bool {
		node, err := tree.Resolve(ref)
		return err == nil && tree.Permit(node, principal, namespace.ToRead) == nil
	}
	for _, h := range p.handles.onNode[ref] {
		mu.pause(1)
		h.looked, h.tried = false, false
		if !h.Events.Has(kind) {
			continue
		}
		if needsRead {
			may, asked := readers[h.principal]
			if !asked {
				may = reads(h.principal, ref) && (other == ref || reads(h.principal, other))
				readers[h.principal] = may
				//mutant: delete(readers, h.principal); mu.mu.steps = 0
				mu.pause(permitSteps)
			}
			if !may {
				continue
			}
		}
		p.postTo(h.Owner, ref, kind, e)
	}
}

// permitSteps counts one permission check in steps: a list may include many others.
const permitSteps = 16

// nodeRemoved tells all handles on a node, and answers its waiters.
func (p *publisher) nodeRemoved(mu hold, node namespace.Ref) {
	for _, h := range p.handles.onNode[node] {
		p.tellRemoved(h.Owner, node)
		mu.pause(1)
	}
	for _, w := range p.queues.ofNode(node) {
		mu.pause(4) // it changes four tables and wakes the waiter
		p.queues.answerWaiter(w.key(), raftfsm.Answer{Refusal: &refusal.Refusal{Cause: refusal.NodeDeleted}})
	}
}

// tellRemoved tells one handle. epoch.mu is held.
func (p *publisher) tellRemoved(owner namespace.Owner, node namespace.Ref) {
	p.postTo(owner, node, api.EventHandleInvalid, &Event{
		Generation: node.Instance, Reason: api.ByDeletion, Explanation: "the node was deleted",
	})
}

// tellAcquired posts a grant to the handles that watch the lock.
func (p *publisher) tellAcquired(mu hold, claim raftfsm.ClaimResult) {
	p.tellHandles(mu, claim.Answer.Lock, api.EventLockAcquired, &Event{Generation: claim.Answer.Generation})
}

// tellVacant ends the holds of locks without a holder, and tells handles that watch them, unless the command
// granted them again. A vacant lock may have a lock-delay. It uses the result, not the state: a later command
// of the entry may have granted the lock or revoked it.
func (p *publisher) tellVacant(mu hold, r raftfsm.Result) {
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
		p.recalls.end(p.recalls[v.Lock])
		if !handedOn[v.Lock] {
			p.epoch.reports.holdTimes.endHold(v.Lock.Name, p.epoch.clock())
			p.tellHandles(mu, v.Lock, api.EventLockVacant, &Event{Generation: v.Generation})
		}
		mu.pause(1)
	}
}

// tellFailOver tells every inherited session that events may be lost, so that clients look again (Chubby
// §2.5, §2.9 step 5).
func (p *publisher) tellFailOver(mu hold) {
	for _, box := range p.boxes.byID {
		mu.pause(1)
		box.post(&Event{Kind: api.EventMasterFailedOver, Explanation: "a new master has taken over: events may have been lost, look again"})
	}
}
