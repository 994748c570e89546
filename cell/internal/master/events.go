package master

import (
	"cmp"
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

// publisher puts events into the mailboxes of those whom they concern.
type publisher struct {
	epoch     *epoch
	boxes     *mailboxes
	handles   *handles
	queues    *queues
	recalls   *recalls
	holdTimes *holdTimes
	copyset   *copyset
}

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

// postTo puts an event about a handle into its session's mailbox and returns its
// number there, 0 if the session has none. The event is copied. epoch.mu is held.
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

// tellConflict tells the holders of a lock, as far as they asked for it, that
// another wants it, and for what. With quiet it only has the lock given back by those that may keep
// it without using it. epoch.mu is held, and released in between.
func (p *publisher) tellConflict(lock namespace.Ref, by namespace.Owner, claim raftfsm.Claim, quiet bool) {
	node, err := p.epoch.state().Tree.Resolve(lock)
	if err != nil || len(node.Holders) == 0 || !node.Mode.Conflicts(claim.Mode) {
		return
	}
	p.askHolders(node, by, claim, quiet)
}

// askHolders is tellConflict for a request that the holders stand in the way of, whatever its mode. epoch.mu is held, and
// released in between.
func (p *publisher) askHolders(node *namespace.Node, by namespace.Owner, claim raftfsm.Claim, quiet bool) {
	lock := node.Ref()
	for _, holder := range node.Holders {
		if h := p.handles.onNode[lock][holder.Owner]; h != nil && h.Owner != by {
			//mutant: p.postConflict(h, lock, node.Lock, "", quiet) //by TestHolderLetsGoWhenItIsAsked of ./client/recipe
			p.postConflict(h, lock, node.Lock, claim.Reason, quiet)
		}
		p.epoch.mu.pause(1)
	}
}

// postConflict tells a holder of a lock that another wants it; see tellConflict. epoch.mu is held.
func (p *publisher) postConflict(h *openHandle, lock namespace.Ref, generation api.Generation, reason string, quiet bool) {
	if h.Events.Has(api.EventConflictingLock) && (h.CachesLock || !quiet) {
		p.postTo(h.Owner, lock, api.EventConflictingLock, &Event{Generation: generation, Explanation: reason, Recall: quiet})
	}
}

// tellTried tells the holders of a lock of a TryAcquire that has not got it. What would have overtaken a waiter that is
// quiet asks those whom that one waits for.
func (p *publisher) tellTried(claim raftfsm.Claim, lock namespace.Ref, overtaken *waiter, quiet bool) {
	switch {
	case overtaken == nil:
	case !overtaken.quiet:
		return // it has asked itself
	default:
		claim.Mode = overtaken.claim.Mode
	}
	p.epoch.mu.LockPatient()
	defer p.epoch.mu.Unlock()
	p.tellConflict(lock, namespace.Owner{Session: claim.Mutation.Session, Handle: claim.Handle}, claim, quiet)
}

// tellBlocked tells the holders of a lock of one who has joined its queue and is not quiet, and who waits for them only
// because a quiet request stands in front: nobody has asked them. epoch.mu is held, and released in between.
func (p *publisher) tellBlocked(lock namespace.Ref, by namespace.Owner) {
	node, err := p.epoch.state().Tree.Resolve(lock)
	if err != nil || len(node.Holders) == 0 {
		return
	}
	if ahead := p.queues.firstAhead(lock, node.Mode); ahead == nil || !ahead.quiet {
		return // who is ahead has asked
	}
	w := p.queues.firstAsking(lock, node.Mode)
	if w != nil && w.owner() == by && !w.claim.Mode.Conflicts(node.Mode) { // else tellConflict has told of it
		p.askHolders(node, by, w.claim, false)
	}
}

// tellConflictAlready tells one who got a lock, as far as it asked for it, that
// somebody who wants it in a conflicting mode waits already: at the time at which
// that one came, another was told. epoch.mu is held.
func (p *publisher) tellConflictAlready(by namespace.Owner, got raftfsm.Answer) {
	one := p.handles.find(by)
	if one == nil || !one.Events.Has(api.EventConflictingLock) {
		return
	}
	first := p.queues.firstAhead(got.Lock, got.Mode)
	if first != nil && first.quiet {
		first = cmp.Or(p.queues.firstAsking(got.Lock, got.Mode), first)
	}
	if first != nil {
		//mutant: p.postConflict(one, got.Lock, got.Generation, "", first.quiet) //by TestRequestDuringFailOverIsTold of ./client/recipe
		p.postConflict(one, got.Lock, got.Generation, first.claim.Reason, first.quiet)
	}
}

// tellRecreated tells a handle of an earlier epoch, which holds its lock, what it would
// have been told if this master had known it: that somebody waits for that. epoch.mu is held.
func (p *publisher) tellRecreated(one *openHandle) {
	node, gone := p.epoch.state().Tree.Resolve(one.Node)
	if gone == nil && node.Holds(one.Owner) {
		p.tellConflictAlready(one.Owner, raftfsm.Answer{Lock: node.Ref(), Generation: node.Lock, Mode: node.Mode})
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
