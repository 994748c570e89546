package master

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

// Locks is the master's part that grants, revokes and releases locks, and answers for
// their sequencers (Chubby §2.4).
type Locks struct {
	epoch     *epoch
	queues    *queues
	holdTimes *holdTimes
	delays    *delays
	outbox    *outbox
	events    *publisher
	offers    *offers
	sessions  *Sessions
	files     *Files
}

// Acquire asks for a lock through a handle that is open, as await does.
func (l *Locks) Acquire(ctx context.Context, claim raftfsm.Claim, h Handle, t Ticket, queued func(Queued) error) (answer raftfsm.Answer, err error) {
	if err = l.files.Use(h, namespace.ToWrite, true); err != nil { // Chubby §2.4: write permission in either mode
		answer, err = l.refuseClaim(ctx, claim, err)
	} else {
		answer, err = l.awaitGrant(ctx, claim, h.Node, t, queued)
	}
	return answer, l.offers.completeRefusal(h.Node, err)
}

// refuseClaim makes a refusal the answer of a request for a lock; see refuse.
func (l *Locks) refuseClaim(ctx context.Context, claim raftfsm.Claim, because error) (raftfsm.Answer, error) {
	result, err := l.files.Refuse(ctx, claim.Mutation, because)
	return result.Answer, err
}

// Queued is how things stand for a request that waits for a lock.
type Queued struct {
	Ticket      Ticket
	Place       int // 1 is next
	Waiting     int
	Holders     []api.Holder // the first
	MoreHolders int
	Delayed     time.Duration // what is left of the lock-delay
	Estimate    time.Duration // of the wait; 0 if there is none
}

// awaitGrant waits in the queue of a lock until the request is answered. queued is
// told of the place when it changes, at most once a second; if it fails, or ctx
// ends, the stream is broken: the place is kept for one lease, and skipped
// meanwhile, so that the client may come back (decision 8).
func (l *Locks) awaitGrant(ctx context.Context, claim raftfsm.Claim, lock namespace.Ref, t Ticket, queued func(Queued) error) (raftfsm.Answer, error) {
	w, err := l.joinQueue(claim, lock, t)
	if err != nil {
		return l.refuseClaim(ctx, claim, err)
	}
	var last *Queued
	progress := time.NewTimer(0)
	defer progress.Stop()
	for {
		select {
		case <-w.done:
			return w.answer, l.epoch.explain(cmp.Or(w.err, w.answer.Err()))
		case <-l.epoch.ctx.Done():
			return l.abandonWaiter(w)
		case <-ctx.Done():
			l.detachStream(w)
			return raftfsm.Answer{}, &api.Error{Code: api.Uncertain, Message: "the call ended while it waited; its place is kept for one lease, so ask again, or withdraw the request", Err: context.Cause(ctx)}
		case <-progress.C:
		}
		if now := l.queuePosition(w); now != nil && !same(now, last) {
			if err := queued(*now); err != nil {
				l.detachStream(w)
				return raftfsm.Answer{}, err
			}
			last = now
		}
		progress.Reset(time.Second)
	}
}

// abandonWaiter answers a waiter after its master was deposed. It takes the waiter out of the
// queue, so that the log is not asked to grant what its client was told is not granted.
func (l *Locks) abandonWaiter(w *waiter) (raftfsm.Answer, error) {
	l.epoch.mu.Lock()
	defer l.epoch.mu.Unlock()
	select {
	case <-w.done:
		return w.answer, l.epoch.explain(cmp.Or(w.err, w.answer.Err()))
	default:
	}
	if l.queues.get(w.key()) == w {
		l.queues.removeWaiter(w.key())
	}
	return raftfsm.Answer{}, w.abandoned(context.Cause(l.epoch.ctx))
}

// joinQueue gives a request its place, and offers the lock if it can be had.
func (l *Locks) joinQueue(claim raftfsm.Claim, lock namespace.Ref, t Ticket) (*waiter, error) {
	size := raftfsm.Size(claim)
	l.epoch.mu.LockPatient()
	defer l.epoch.mu.Unlock()
	l.epoch.mu.pause(l.queues.stepsOf(lock.Name))
	if err := l.files.checkUnfinished(claim.Mutation); err != nil {
		return nil, err // a late copy is not to stand in anybody's way
	}
	if r := l.files.refuseHandle(namespace.Owner{Session: claim.Mutation.Session, Handle: claim.Handle}); r != nil {
		return nil, r
	}
	who := l.epoch.principal(claim.Mutation.Session)
	w, err := l.queues.join(&waiter{claim: claim, size: size, lock: lock, who: who, ticket: t, since: l.epoch.clock()}, l.epoch.number, l.epoch.state().Quota(who).Waiters)
	if err != nil {
		return nil, err
	}
	if !l.offers.askLog(w) {
		l.offers.offerLock(lock.Name)
	}
	l.events.tellConflict(lock, namespace.Owner{Session: claim.Mutation.Session, Handle: claim.Handle}, claim.Mode)
	return w, nil
}

// askLog asks the log about a request that needs no free lock to be answered, and
// reports whether it is one. While its handle is being closed it is asked nothing but
// to refuse it: the lock that the handle holds may be free by then, and would be
// granted to a closed handle. epoch.mu is held.
func (o *offers) askLog(w *waiter) bool {
	if w.offered || w.refusal == nil && o.queues.isClosing(w.owner()) || !o.isAnswerable(w) {
		return false
	}
	claims := offer([]*waiter{w})
	if w.refusal != nil {
		o.epoch.submit(raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: w.claim.Mutation, Refusal: w.refusal}})
	} else {
		o.epoch.submit(raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: w.lock, Claims: claims}}})
	}
	return true
}

// isAnswerable reports whether a request needs no lock to be free to be answered: it is
// refused, or was answered before, or its handle holds the lock itself, or the node is
// gone.
func (o *offers) isAnswerable(w *waiter) bool {
	state := o.epoch.state()
	node, err := state.Tree.Resolve(w.lock)
	if w.refusal != nil || err != nil || node.Holds(namespace.Owner{Session: w.claim.Mutation.Session, Handle: w.claim.Handle}) {
		return true
	}
	_, lives := state.Sessions.Get(w.claim.Mutation.Session)
	return !lives || o.epoch.isAnswered(w.claim.Mutation)
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
		o.epoch.submit(raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: node.Ref(), Claims: offer(lead)}}})
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
// whatever became of it. If requests still wait through the handle, the lock's new
// holder hears of the conflict. epoch.mu is held, and released in between.
func (o *offers) handleClosed(by namespace.Owner) {
	if !o.queues.endClosing(by) {
		return
	}
	var wants *waiter // the one that most is in conflict with
	for w := range o.queues.ofHandle(by) {
		if w.refusal == nil {
			o.outbox.putRequest(w)
			o.outbox.putLock(w.lock.Name)
			if wants == nil || w.claim.Mode == api.Exclusive {
				wants = w
			}
		}
		o.epoch.mu.pause(1)
	}
	if wants != nil {
		o.events.tellConflict(wants.lock, by, wants.claim.Mode)
	}
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

// recordGrant records a grant for the metrics and the log.
func (l *Locks) recordGrant(claim raftfsm.ClaimResult) {
	if claim.Answer.Code() != api.OK {
		return
	}
	l.holdTimes.beginHold(claim.Answer.Lock.Name, claim.Answer.Generation, l.epoch.clock())
	l.events.tellAcquired(claim)
	if w := l.queues.get(waiterKey{session: claim.Owner.Session, number: claim.Number}); w != nil {
		l.epoch.metrics.LockGranted(l.epoch.clock().Sub(w.since))
	}
	l.epoch.log.Debug("lock granted", "lock", claim.Answer.Lock.Name, "session", claim.Owner.Session, "token", claim.Answer.Generation)
}

// detachStream takes note that a stream of a waiter broke.
func (l *Locks) detachStream(w *waiter) {
	l.epoch.mu.Lock()
	defer l.epoch.mu.Unlock()
	l.queues.detach(w, l.epoch.clock().Add(l.sessions.leaseOf(w.claim.Mutation.Session)))
	l.outbox.putLock(w.lock.Name) // whoever is next need not wait for an absent one
}

// queuePosition describes a waiter's place; nil while a grant is on its way.
func (l *Locks) queuePosition(w *waiter) *Queued {
	l.epoch.mu.Lock()
	defer l.epoch.mu.Unlock()
	if w.offered || l.queues.get(w.key()) != w {
		return nil
	}
	state := l.epoch.state()
	place, waiting := l.queues.position(w)
	q := &Queued{Ticket: w.ticket, Place: place, Waiting: waiting, Delayed: l.delays.left(w.lock.Name, l.epoch.clock())}
	if node, ok := state.Tree.Get(w.lock.Name); ok {
		q.Holders, q.MoreHolders = l.epoch.parties(state, node.Holders, api.MaxNamed)
	}
	if place > maxEstimated {
		return q
	}
	for ahead, other := range l.queues.inOrder(w.lock.Name) {
		if other == w {
			q.Estimate = l.estimateWait(w.lock.Name, len(q.Holders) > 0, ahead)
			break
		}
	}
	return q
}

// maxEstimated bounds the work of telling each who waits, once a second, how long
// it may be: those further back are not told.
const maxEstimated = 1000

// estimateWait says how long one may have to wait who has ahead turns of others
// before him, and the rest of the one that goes on; 0 if that cannot be told.
// epoch.mu is held.
func (l *Locks) estimateWait(name api.Name, held bool, ahead int) time.Duration {
	now := l.epoch.clock()
	delayed := l.delays.left(name, now)
	if !held && ahead == 0 {
		return delayed
	}
	wait := l.holdTimes.estimateWait(name, held, ahead, now)
	if wait == 0 {
		return 0
	}
	return delayed + wait
}

// same reports whether two messages tell a client the same, what is left of a
// delay and of the wait apart, which it can count down by itself.
func same(a, b *Queued) bool {
	return b != nil && a.Place == b.Place && a.Waiting == b.Waiting && a.MoreHolders == b.MoreHolders && (a.Delayed > 0) == (b.Delayed > 0) &&
		slices.EqualFunc(a.Holders, b.Holders, func(x, y api.Holder) bool { return x.Session == y.Session })
}

// TryAcquire takes a lock or says at once why not. Those who wait come first.
func (l *Locks) TryAcquire(ctx context.Context, claim raftfsm.Claim, h Handle) (raftfsm.Answer, error) {
	lock := h.Node
	if err := l.files.Use(h, namespace.ToWrite, true); err != nil { // Chubby §2.4: write permission in either mode
		answer, err := l.refuseClaim(ctx, claim, err)
		return answer, l.offers.completeRefusal(lock, err)
	}
	claim.Try = true
	result, err := l.epoch.proposeBuilt(ctx, func() raftfsm.Command {
		l.epoch.mu.pause(l.queues.stepsOf(lock.Name))
		r := l.files.refuseHandle(namespace.Owner{Session: claim.Mutation.Session, Handle: claim.Handle})
		if first := l.firstOvertaken(claim, lock); r == nil && first != nil {
			r = &refusal.Refusal{Cause: refusal.WaitersComeFirst, Holders: []api.SessionID{first.claim.Mutation.Session}, HolderCount: 1}
		}
		if r != nil {
			return raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: claim.Mutation, Refusal: r}}
		}
		return raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: lock, Claims: []raftfsm.Claim{claim}}}}
	})
	if err != nil || len(result.Claims) == 0 {
		return result.Answer, l.offers.completeRefusal(lock, err)
	}
	a := result.Claims[0].Answer
	if a.Code() == api.LockHeld {
		l.epoch.mu.LockPatient()
		l.events.tellConflict(lock, result.Claims[0].Owner, claim.Mode)
		l.epoch.mu.Unlock()
	}
	return a, l.offers.completeRefusal(lock, a.Err())
}

// firstOvertaken returns somebody who waits for a lock that a newcomer could have now,
// and who came first. Nobody overtakes an earlier writer, with TryAcquire neither
// (decision 8). If the lock is not to be had at all, the log says who holds it.
// epoch.mu is held.
func (l *Locks) firstOvertaken(claim raftfsm.Claim, lock namespace.Ref) *waiter {
	node, err := l.epoch.state().Tree.Resolve(lock)
	if err != nil || len(node.Holders) > 0 && node.Mode.Conflicts(claim.Mode) {
		return nil
	}
	return l.queues.firstAhead(lock, claim.Mode)
}

// completeRefusal completes the refusal of a lock: who holds it since when and why, or
// how long it is delayed.
func (o *offers) completeRefusal(lock namespace.Ref, err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	state := o.epoch.state()
	switch e.Code {
	case api.LockDelayed:
		o.epoch.mu.Lock()
		e.Remaining = o.delays.left(lock.Name, o.epoch.clock())
		o.epoch.mu.Unlock()
	case api.LockHeld:
		if node, gone := state.Tree.Resolve(lock); gone == nil && len(node.Holders) > 0 {
			e.Holders = nil
			for _, h := range node.Holders[:min(len(node.Holders), api.MaxListed)] {
				e.Holders = append(e.Holders, o.epoch.holder(state, h))
			}
			return e
		}
		return o.epoch.explain(e)
	}
	return e
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
	if node, err := o.epoch.state().Tree.Resolve(lock); err != nil || !frees(node) {
		return nil
	}
	return []raftfsm.Succession{{Lock: lock, Claims: offer(lead)}}
}

// Release gives a lock back; those who wait next have it in the same entry.
func (l *Locks) Release(ctx context.Context, mutation session.Mutation, h Handle, generation api.Generation) error {
	_, err := l.epoch.proposeBuilt(ctx, func() raftfsm.Command {
		l.epoch.mu.pause(l.queues.stepsOf(h.Node.Name))
		return raftfsm.Command{Release: &raftfsm.Release{
			Mutation: mutation, Lock: h.Node, Handle: h.Owner.Handle, Generation: generation,
			Successions: l.offers.successorsOf(h.Node, func(n *namespace.Node) bool { return n.Lock == generation && n.Holds(h.Owner) }),
		}}
	})
	return err
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
		if claims := offer(o.queues.leading(node.Ref(), node.Mode)); len(claims) > 0 {
			c.Successions = []raftfsm.Succession{{Lock: node.Ref(), Claims: claims}}
		}
	}
	o.epoch.submit(raftfsm.Command{EndDelay: c})
}

// Cancel withdraws a request of a session. If it had been done its answer is
// returned.
func (l *Locks) Cancel(ctx context.Context, mutation session.Mutation) (raftfsm.Answer, error) {
	result, err := l.epoch.commit(ctx, raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: mutation}}, nil)
	return result.Answer, err
}

// SequencerOf returns the sequencer of a grant.
func (l *Locks) SequencerOf(a raftfsm.Answer) (sequencer.Sequencer, error) {
	path, err := a.Lock.Name.In(l.epoch.cell)
	return sequencer.Sequencer{Cell: l.epoch.cellID, Path: path, Mode: a.Mode, Generation: a.Generation}, err
}
