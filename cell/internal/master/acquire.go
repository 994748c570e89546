package master

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

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

// awaitGrant waits in the queue of a lock until the request is answered. If Queued
// fails, or ctx ends, the stream is broken: the place is kept for one lease, and skipped
// meanwhile, so that the client may come back (decision 8).
func (l *Locks) awaitGrant(ctx context.Context, r AcquireRequest) (raftfsm.Answer, error) {
	trace := l.epoch.traceOf(ctx)
	began := l.epoch.clock()
	w, offered, err := l.joinQueue(&waiter{
		claim: r.Claim, lock: r.Handle.Node, ticket: r.Ticket, detects: r.Detect, quiet: r.Quiet, trace: trace, request: steps.RequestOf(ctx),
	}, r.Waited)
	if err != nil {
		return l.refuseClaim(ctx, w.claim, err)
	}
	first, answer, err := l.awaitAnswer(ctx, w, offered, r.Queued)
	now, straight := l.epoch.clock(), offered && first == nil
	if trace != nil {
		tellWait(trace, w, first, straight, began, now, err)
	}
	if late := steps.LateOf(ctx, w.answering(began, now, straight)); late != nil {
		tellWait(late, w, first, straight, began, now, err)
	}
	return answer, err
}

// awaitAnswer waits for the answer to a request that is in a queue. first is how things stood when queued was first told;
// nil if it was not.
func (l *Locks) awaitAnswer(ctx context.Context, w *waiter, offered bool, queued func(Queued) error) (first *Queued, answer raftfsm.Answer, err error) {
	var last *Queued
	var soon time.Duration
	if offered {
		soon = offerTime
	}
	progress := time.NewTimer(soon)
	defer progress.Stop()
	for {
		select {
		case <-w.done:
			return first, w.answer, cmp.Or(w.err, w.answer.Err())
		case <-l.epoch.ctx.Done():
			answer, err = l.abandonWaiter(w)
			return first, answer, err
		case <-ctx.Done():
			l.detachStream(w)
			return first, raftfsm.Answer{}, &api.Error{Code: api.Uncertain, Message: "the call ended while it waited; its place is kept for one lease, so ask again, or withdraw the request", Err: context.Cause(ctx)}
		case <-progress.C:
		}
		if now := l.queuePosition(w); now != nil && !same(now, last) {
			if err := queued(*now); err != nil {
				l.detachStream(w)
				return first, raftfsm.Answer{}, err
			}
			last, first = now, cmp.Or(first, now)
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
		return w.answer, cmp.Or(w.err, w.answer.Err())
	default:
	}
	if l.queues.get(w.key()) == w {
		l.queues.removeWaiter(w.key())
	}
	//mutant: return raftfsm.Answer{}, context.Cause(l.epoch.ctx)
	return raftfsm.Answer{}, w.abandoned(context.Cause(l.epoch.ctx))
}

// offerTime is how long a request whose lock is on its way to it is not looked at: most
// have the lock by then.
const offerTime = 50 * time.Millisecond

// joinQueue gives a request its place, and offers the lock if it can be had. waited is for how long it had waited at an earlier master,
// as its client says. w is what stands for
// the request, of which an earlier copy may have come; with an error it is what was asked. offered
// says whether a command that may grant it is on its way.
func (l *Locks) joinQueue(asked *waiter, waited time.Duration) (w *waiter, offered bool, err error) {
	claim, lock := asked.claim, asked.lock
	asked.size = raftfsm.Size(claim)
	l.epoch.mu.LockPatient()
	defer l.epoch.mu.Unlock()
	l.epoch.mu.pause(l.queues.stepsOf(lock.Name))
	if err := l.files.checkUnfinished(claim.Mutation); err != nil {
		return asked, false, err // a late copy is not to stand in anybody's way
	}
	if r := l.files.refuseHandle(namespace.Owner{Session: claim.Mutation.Session, Handle: claim.Handle}); r != nil {
		return asked, false, r
	}
	asked.who, asked.since = l.epoch.principal(claim.Mutation.Session), l.epoch.clock()
	if back := asked.ticket; back != (Ticket{}) && back.Epoch < l.epoch.number {
		asked.since = asked.since.Add(-max(waited, 0))
	}
	w, err = l.queues.join(asked, l.epoch.number, l.epoch.state().Quota(asked.who).Waiters)
	if err != nil {
		return asked, false, err
	}
	if !l.offers.askLog(w) {
		l.offers.offerLock(lock.Name)
	}
	offered = w.offered
	l.events.tellConflicts(lock, nil)
	l.graph.joined(w)
	return w, offered, nil
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
