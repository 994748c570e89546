package master

import (
	"context"
	"log/slog"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// The observer publishes events in commit order: after the change can be read, and before its author has the
// answer. They wait in mailboxes, and the master never waits for those (Chubby §2.5).

// publisher puts events into the mailboxes of the sessions they concern.
type publisher struct {
	epoch   *epoch
	boxes   *tables.Mailboxes
	handles *tables.Handles
	queues  *tables.Queues
	recalls tables.Recalls
	copyset *tables.Copyset
}

// postTo posts a copy of an event about a handle to its session. It returns the event's number, 0 without a
// mailbox. epoch.mu is held.
func (p *publisher) postTo(to namespace.Owner, ref namespace.Ref, kind api.EventKind, e *Event) uint64 {
	box := p.boxes.ByID[to.Session]
	if box == nil {
		return 0
	}
	return box.Post(&Event{
		Kind: kind, Handle: to.Handle, Path: p.epoch.path(ref.Name), Child: e.Child,
		Generation: e.Generation, Reason: e.Reason, Explanation: e.Explanation, Recall: e.Recall,
	})
}

// publishChange posts a change to handles on the node and its directory.
func (p *publisher) publishChange(mu hold, c namespace.Change) {
	if !p.copyset.IsChanging(c.Node.Name) {
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
	for _, h := range p.handles.OnNode[ref] {
		mu.pause(1)
		h.Looked, h.Tried = false, false
		if !h.Events.Has(kind) {
			continue
		}
		if needsRead {
			may, asked := readers[h.Principal]
			if !asked {
				may = reads(h.Principal, ref) && (other == ref || reads(h.Principal, other))
				readers[h.Principal] = may
				//mutant: delete(readers, h.Principal); mu.mu.steps = 0
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
	for _, h := range p.handles.OnNode[node] {
		p.tellRemoved(h.Owner, node)
		mu.pause(1)
	}
	for _, w := range p.queues.OfNode(node) {
		mu.pause(4) // it changes four tables and wakes the waiter
		p.queues.AnswerWaiter(w.Key(), raftfsm.Answer{Refusal: &refusal.Refusal{Cause: refusal.NodeDeleted}})
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
		p.recalls.End(p.recalls[v.Lock])
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
	for _, box := range p.boxes.ByID {
		mu.pause(1)
		box.Post(&Event{Kind: api.EventMasterFailedOver, Explanation: "a new master has taken over: events may have been lost, look again"})
	}
}

// tellConflicts posts an event to holders that want it, when requests wait because of them. A holder that
// just got the lock, or whose handle is new here, learns of the first waiter; the others learn of each new
// one. Call it after changes of the holders or the queue: joinQueue, TryAcquire, claimsAnswered, useIn and closeEnded
// do. tried is a refused request, which counts as a
// waiter that leaves at once; it may be nil.
//
// A quiet request goes only to holders that may keep the lock unused, as a recall that programs do not see.
func (p *publisher) tellConflicts(mu hold, lock namespace.Ref, tried *tables.Waiter) {
	if tried == nil && len(p.queues.ByName[lock.Name]) == 0 { // mostly
		return
	}
	node, err := p.epoch.state().Tree.Resolve(lock)
	if err != nil {
		return
	}
	var news tables.Askers
	looked := false
	for _, holder := range node.Holders {
		steps := 1
		if h := p.handles.OnNode[lock][holder.Owner]; h != nil && h.WantsConflicts() {
			if !looked { // most holders do not want the event, and the queue may be long
				news, looked = p.queues.Asking(lock, node.Mode, tried), true
				steps += p.queues.StepsOf(lock.Name)
			}
			p.tellConflictsTo(h, node.Lock, news)
		}
		mu.pause(steps)
	}
}

// tellConflictsTo tells one holder. epoch.mu is held.
func (p *publisher) tellConflictsTo(h *tables.OpenHandle, generation api.Generation, news tables.Askers) {
	list := news.Unknown
	if !h.Told {
		list = news.First[:]
	}
	for _, w := range list {
		if w == nil || !h.HearsOf(w) {
			continue
		}
		//mutant: p.postTo(h.Owner, h.Node, api.EventConflictingLock, &Event{Generation: generation, Recall: w.Quiet})
		p.postTo(h.Owner, h.Node, api.EventConflictingLock, &Event{Generation: generation, Explanation: w.Claim.Reason, Recall: w.Quiet})
		if !h.Told {
			break
		}
	}
	h.Told = true
}

// maxRecall bounds how long a TryAcquire or a Delete waits for a kept lock.
const maxRecall = time.Second

// maxRecalled bounds the holders of a recalled lock; one with more is not recalled.
const maxRecalled = 64

// awaitRecall asks for a kept, unused lock that conflicts with mode, and waits for it. asked says that
// holders were told.
func (p *publisher) awaitRecall(ctx context.Context, lock namespace.Ref, by namespace.Owner, mode api.LockMode) (asked bool) {
	if node, err := p.epoch.state().Tree.Resolve(lock); err != nil || len(node.Holders) == 0 { // most need no mutex
		return false
	}
	mu := p.epoch.mu.holdPatiently()
	r := p.recall(mu, lock, by, mode)
	mu.end()
	if r == nil {
		return false
	}
	timer := time.NewTimer(r.Until.Sub(p.epoch.clock()))
	defer timer.Stop()
	select {
	case <-r.Done:
	case <-timer.C:
	case <-ctx.Done():
	case <-p.epoch.ctx.Done():
	}
	return true
}

// recall asks a lock's holders for it once. It returns nil if there is nothing to wait for: an earlier
// request waits, or a holder does not keep the lock.
func (p *publisher) recall(mu hold, lock namespace.Ref, by namespace.Owner, mode api.LockMode) *tables.Recall {
	mu.pause(p.queues.StepsOf(lock.Name))
	node, err := p.epoch.state().Tree.Resolve(lock)
	if err != nil || len(node.Holders) == 0 || len(node.Holders) > maxRecalled || node.Revoked != nil || !node.Mode.Conflicts(mode) ||
		p.queues.FirstAhead(lock, mode) != nil {
		return nil
	}
	open := p.handles.OnNode[lock]
	for _, holder := range node.Holders {
		if h := open[holder.Owner]; h == nil || h.Owner == by || !h.CachesLock || !h.Events.Has(api.EventConflictingLock) {
			return nil
		}
	}
	if r := p.recalls[lock]; r != nil {
		return r
	}
	r := &tables.Recall{Lock: lock, Until: p.epoch.clock().Add(maxRecall), Done: make(chan struct{})}
	for _, holder := range node.Holders {
		sequence := p.postTo(holder.Owner, lock, api.EventConflictingLock, &Event{Generation: node.Lock, Recall: true})
		if sequence == 0 {
			continue
		}
		box := p.boxes.ByID[holder.Session]
		if box.Recalled == nil {
			box.Recalled = map[*tables.Recall]uint64{}
		}
		if box.Recalled[r] == 0 {
			r.Of = append(r.Of, box)
			r.Left++
		}
		box.Recalled[r] = sequence
	}
	if r.Left == 0 {
		return nil
	}
	p.recalls[lock] = r
	return r
}
