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
	"github.com/chubbylock/chubby/session"
)

// Queued is the progress of a waiting request.
type Queued struct {
	Ticket      Ticket
	Place       int // 1 is next
	Waiting     int
	Holders     []api.Holder // the first
	MoreHolders int
	Delayed     time.Duration // rest of the lock-delay
	Estimate    time.Duration // of the wait; 0 if unknown
}

// awaitGrant waits in a queue until the request is answered. If Queued fails, or ctx ends, its place is kept
// for one lease, and skipped meanwhile, so that the client may return (decision 8).
func (l *Locks) awaitGrant(ctx context.Context, r AcquireRequest) (raftfsm.Answer, error) {
	began := l.epoch.clock()
	w, offered, err := l.joinQueue(&waiter{
		claim: r.Claim, lock: r.Handle.Node, ticket: r.Ticket, detects: r.Detect, quiet: r.Quiet,
		trace: steps.TraceOf(ctx), request: steps.RequestOf(ctx),
	}, r.Waited)
	if err != nil {
		return l.refuseClaim(ctx, w.claim, err)
	}
	first, answer, err := l.awaitAnswer(ctx, w, offered, r.Queued)
	tellCall(ctx, w, first, offered && first == nil, began, l.epoch.clock(), err)
	return answer, err
}

// awaitAnswer waits for the answer to a queued request. first is the first progress that queued got, or nil.
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

// abandonWaiter answers a waiter of a deposed master. It first removes the waiter: the log must not grant
// what this answer denies.
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

// offerTime delays the first progress of an offered request: most have the lock by then.
const offerTime = 50 * time.Millisecond

// joinQueue gives a request its place, and offers it the lock if possible. waited is its time at earlier
// masters, by its client's count. w is the request's waiter, perhaps from an earlier copy; with an error it
// is asked. offered says that a command that may grant it is on its way.
func (l *Locks) joinQueue(asked *waiter, waited time.Duration) (w *waiter, offered bool, err error) {
	claim, lock := asked.claim, asked.lock
	asked.size = raftfsm.Size(claim)
	mu := l.epoch.mu.holdPatiently()
	defer mu.end()
	mu.pause(l.queues.stepsOf(lock.Name))
	if err := l.files.checkUnfinished(claim.Mutation); err != nil {
		return asked, false, err // a late copy must not delay others
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
	l.events.tellConflicts(mu, lock, nil)
	l.graph.joined(mu, w)
	return w, offered, nil
}

// detachStream ends a stream of a waiter.
func (l *Locks) detachStream(w *waiter) {
	l.epoch.mu.Lock()
	defer l.epoch.mu.Unlock()
	l.queues.detach(w, l.epoch.clock().Add(l.sessions.leaseOf(w.claim.Mutation.Session)))
	l.outbox.putLock(w.lock.Name) // the next need not wait for an absent one
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

// maxEstimated bounds the places that get an estimate, each once a second.
const maxEstimated = 1000

// estimateWait estimates the wait behind the current turn and ahead others; 0 if unknown. epoch.mu is held.
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

// same reports whether two messages differ only in times that the client can count down.
func same(a, b *Queued) bool {
	return b != nil && a.Place == b.Place && a.Waiting == b.Waiting && a.MoreHolders == b.MoreHolders && (a.Delayed > 0) == (b.Delayed > 0) &&
		slices.EqualFunc(a.Holders, b.Holders, func(x, y api.Holder) bool { return x.Session == y.Session })
}

// tellCall tells the call of a request for a lock what it waited for. first is its first progress; straight: it
// was offered at once. The call was slow if the answer took long after earlier waiters were done.
func tellCall(ctx context.Context, w *waiter, first *Queued, straight bool, began, now session.Instant, err error) {
	answered := false
	select {
	case <-w.done:
		answered = w.entry != nil // valid, because done is closed
	default:
	}
	granting, answering := began, time.Duration(0)
	if answered && !straight {
		granting = max(began, w.granting)
	}
	if answered {
		answering = now.Sub(granting)
	}
	call := steps.Told(ctx, answering)
	if call == nil {
		return
	}
	queue := steps.Step{Kind: steps.Queue, From: began, To: now, Err: err, Mode: w.claim.Mode}
	if first != nil {
		queue.Place, queue.Waiting = first.Place, first.Waiting
		for _, holder := range first.Holders {
			queue.Holders = append(queue.Holders, holder.Session)
		}
	}
	if !answered {
		call.Step(queue)
		return
	}
	if !straight {
		queue.To, queue.Err = granting, nil
		call.Step(queue)
	}
	for _, step := range w.entry.Steps(granting, now, err) {
		call.Step(step)
	}
}
