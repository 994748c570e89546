package master

import (
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// offers hands locks to those who wait for them: it names them in commands, and takes
// that back when a command has not granted them the lock.
type offers struct {
	epoch  *epoch
	queues *queues
	delays *delays
	outbox *outbox
	events *publisher
}

// offer marks waiters as being on their way to a grant and returns their
// claims. epoch.mu is held.
func (o *offers) offer(lead []*waiter) []raftfsm.Claim {
	var claims []raftfsm.Claim
	for _, w := range lead {
		w.offered = true
		if o.epoch.proposer.entries.timed() {
			w.granting = o.epoch.clock()
		}
		claims = append(claims, w.claim)
	}
	return claims
}

// askLog asks the log about a request that needs no free lock to be answered, and
// reports whether it is one. While its handle is being closed it is asked nothing but
// to refuse it: the lock that the handle holds may be free by then, and would be
// granted to a closed handle. epoch.mu is held.
func (o *offers) askLog(w *waiter) bool {
	if w.offered || w.refusal == nil && o.queues.isClosing(w.owner()) || !o.isAnswerable(w) {
		return false
	}
	claims := o.offer([]*waiter{w})
	if w.refusal != nil {
		//mutant: o.queues.answerWaiter(w.key(), raftfsm.Answer{Refusal: w.refusal}); o.epoch.submit(raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: w.claim.Mutation, Refusal: w.refusal}})
		o.epoch.submit(raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: w.claim.Mutation, Refusal: w.refusal}})
	} else {
		o.epoch.submit(raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: w.lock, Claims: claims}}})
	}
	return true
}

// isAnswerable reports whether a request needs no lock to be free to be answered: it is
// refused, or was answered before, or its handle holds the lock itself, or the node is
// gone, or everybody is refused a lock.
func (o *offers) isAnswerable(w *waiter) bool {
	state := o.epoch.state()
	node, err := state.Tree.Resolve(w.lock)
	if w.refusal != nil || err != nil || node.Holds(namespace.Owner{Session: w.claim.Mutation.Session, Handle: w.claim.Handle}) {
		return true
	}
	_, lives := state.Sessions.Get(w.claim.Mutation.Session)
	_, sealed := state.Restoring()
	return !lives || sealed || o.epoch.isAnswered(w.claim.Mutation)
}

// offerLock offers a lock to those at the head of its queue who can have it now.
// epoch.mu is held.
func (o *offers) offerLock(name api.Name) {
	tree := o.epoch.state().Tree
	node, ok := tree.Get(name)
	if !ok || node.Revoked != nil {
		return // nodeRemoved has told those who waited; a revoked lock is free when its holders have let go
	}
	lead := o.queues.leading(node.Ref(), node.Mode)
	if d, delayed := tree.Delay(name); delayed && len(lead) > 0 && d.Mode.Conflicts(lead[0].claim.Mode) {
		return
	}
	if len(lead) > 0 {
		o.epoch.submit(raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: node.Ref(), Claims: o.offer(lead)}}})
	}
}

// withdrawOffers notes that a command's claims are not on their way any more, whatever
// became of it; those that are still waiting may be offered the lock again. It is
// the one place where what was marked for a command is unmarked. doubt says that
// nobody knows what became of it. epoch.mu is held, and
// released in between if the command is a Close.
func (o *offers) withdrawOffers(c raftfsm.Command, doubt bool) {
	for _, next := range c.Successions() {
		for _, claim := range next.Claims {
			if w := o.queues.get(waiterKey{session: claim.Mutation.Session, number: claim.Mutation.Number}); w != nil {
				//mutant: w.offered = false
				w.offered, w.doubt = false, w.doubt || doubt
				o.outbox.putLock(next.Lock.Name)
			}
		}
	}
	switch {
	case c.Cancel != nil:
		if w := o.refusedWaiter(c.Cancel); w != nil {
			w.offered = false
		}
	case c.Close != nil:
		o.handleClosed(namespace.Owner{Session: c.Close.Mutation.Session, Handle: c.Close.Handle})
	}
}

// handleClosed notes that a command which closes a handle is not on its way any more,
// whatever became of it. If requests still wait through the handle, the lock's holders are
// told of them anew: one that has got it meanwhile was not. epoch.mu is held, and released in between.
func (o *offers) handleClosed(by namespace.Owner) {
	if !o.queues.endClosing(by) {
		return
	}
	var lock namespace.Ref
	for w := range o.queues.ofHandle(by) {
		if w.refusal == nil {
			o.outbox.putRequest(w)
			o.outbox.putLock(w.lock.Name)
			lock, w.told = w.lock, false
		}
		o.epoch.mu.pause(1)
	}
	o.events.tellConflicts(lock, nil)
}

// refusedWaiter returns the waiter that a command of the master's own refuses, or nil.
// epoch.mu is held.
func (o *offers) refusedWaiter(c *raftfsm.Cancel) *waiter {
	w := o.queues.get(waiterKey{session: c.Mutation.Session, number: c.Mutation.Number})
	if w == nil || w.refusal == nil || w.refusal != c.Refusal {
		return nil
	}
	return w
}

// successorsOf offers the lock of a node to those who wait first, for a command that frees it. It
// does so only if the state says that the command will: anybody may ask for a lock to be
// given up that others hold, and who is named by such a command would not be by the one
// that hands the lock over. epoch.mu is held.
func (o *offers) successorsOf(lock namespace.Ref, frees func(*namespace.Node) bool) []raftfsm.Succession {
	lead := o.queues.leading(lock, 0)
	if len(lead) == 0 { // mostly; of a node, frees may look at very many holders
		return nil
	}
	//mutant: if node, err := o.epoch.state().Tree.Resolve(lock); err != nil || node == nil {
	if node, err := o.epoch.state().Tree.Resolve(lock); err != nil || !frees(node) {
		return nil
	}
	return []raftfsm.Succession{{Lock: lock, Claims: o.offer(lead)}}
}

// endDelay proposes the end of a lock-delay that has run its time, and of no
// other: the state may show a later one on its name by now. epoch.mu is held.
func (o *offers) endDelay(over delayOver) {
	tree := o.epoch.state().Tree
	if d, ok := tree.Delay(over.name); !ok || d.ID != over.id {
		return
	}
	c := &raftfsm.EndDelay{Name: over.name, ID: over.id}
	if node, ok := tree.Get(over.name); ok {
		if claims := o.offer(o.queues.leading(node.Ref(), node.Mode)); len(claims) > 0 {
			c.Successions = []raftfsm.Succession{{Lock: node.Ref(), Claims: claims}}
		}
	}
	o.epoch.submit(raftfsm.Command{EndDelay: c})
}

// endCommand ends as many of the first sessions as one command has room for, and
// names successors for the locks that they hold; rest is for the next command. For
// locks that there is no room to name, or too many to look at, pump finds the next
// ones when the end has been observed. epoch.mu is held, and the command is to be handed
// over under the same hold: who is named in it is marked as offered.
func (o *offers) endCommand(ends []raftfsm.End) (c raftfsm.Command, rest []raftfsm.End) {
	part := firstPart(ends, o.queues.claims, func(e raftfsm.End) int { return raftfsm.Size(e) })
	return raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: part, Successions: o.successions(part)}}, ends[len(part):]
}

// successions names those who have the locks next that ending sessions hold, of as
// many locks as there is room for in one command. epoch.mu is held.
func (o *offers) successions(ends []raftfsm.End) []raftfsm.Succession {
	var list []raftfsm.Succession
	tree, bytes, visited := o.epoch.state().Tree, 0, 0
	for _, end := range ends {
		for node := range tree.OwnedBy(end.Session) {
			if visited += o.queues.stepsOf(node.Name); visited > maxOwned {
				return list
			}
			lead := o.queues.leading(node.Ref(), 0)
			if len(lead) == 0 {
				continue
			}
			//mutant: if !slices.ContainsFunc(node.Holders, func(h namespace.Holder) bool { return h.Session == end.Session || true }) {
			if !slices.ContainsFunc(node.Holders, func(h namespace.Holder) bool { return h.Session == end.Session }) {
				continue // it has an ephemeral node open; see next
			}
			bytes += raftfsm.Size(node.Ref())
			for _, w := range lead {
				bytes += w.size
			}
			if len(list) > 0 && bytes > o.queues.claims {
				return list
			}
			list = append(list, raftfsm.Succession{Lock: node.Ref(), Claims: o.offer(lead)})
		}
	}
	return list
}

// maxOwned bounds the nodes that sessions which end in one entry own together, unless it
// is one session only.
const maxOwned = 1024
