package master

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

// Locks is the master's part that grants, revokes and releases locks, and checks sequencers (Chubby §2.4).
type Locks struct {
	epoch     *epoch
	queues    *tables.Queues
	holdTimes *holdTimes
	delays    *tables.Delays
	outbox    *tables.Outbox
	events    *publisher
	offers    *offers
	graph     *waitGraph
	sessions  *Sessions
	files     *Files
}

// AcquireRequest asks for a lock through a handle.
type AcquireRequest struct {
	Claim  raftfsm.Claim // for the log
	Handle Handle        // an open one
	Quiet  bool          // no holder's program learns of it (api.EventConflictingLock)

	// For Acquire alone.
	Ticket Ticket             // of its earlier place; zero if it had none
	Waited time.Duration      // at earlier masters, as the client says; for people
	Detect bool               // answer Deadlock if it waits for itself (waitGraph); needs raftfsm.DeadlockLevel
	Queued func(Queued) error // called with its place when that changes, at most once a second
}

// Acquire waits in a queue until the request is answered. If Queued fails, or ctx ends, its place is kept for
// one lease, and skipped meanwhile, so that the client may return (decision 8).
func (l *Locks) Acquire(ctx context.Context, r AcquireRequest) (raftfsm.Answer, error) {
	if level := l.epoch.state().Level; r.Detect && level < raftfsm.DeadlockLevel {
		return raftfsm.Answer{}, raftfsm.NeedsLevel(raftfsm.DeadlockLevel, level)
	}
	if err := l.files.Use(r.Handle, namespace.ToWrite, true); err != nil { // Chubby §2.4: write permission in either mode
		return l.refuseClaim(ctx, r.Claim, err)
	}
	began := l.epoch.clock()
	w, offered, err := l.joinQueue(&tables.Waiter{
		Claim: r.Claim, Lock: r.Handle.Node, Ticket: r.Ticket, Detects: r.Detect, Quiet: r.Quiet,
		Trace: steps.TraceOf(ctx), Request: steps.RequestOf(ctx),
	}, r.Waited)
	if err != nil {
		return l.refuseClaim(ctx, w.Claim, err)
	}
	first, answer, err := l.awaitAnswer(ctx, w, offered, r.Queued)
	tellCall(ctx, w, first, offered && first == nil, began, l.epoch.clock(), err)
	return answer, err
}

// refuseClaim makes a refusal the answer of a request for a lock; see Files.Refuse.
func (l *Locks) refuseClaim(ctx context.Context, claim raftfsm.Claim, because error) (raftfsm.Answer, error) {
	result, err := l.files.Refuse(ctx, claim.Mutation, because)
	return result.Answer, err
}

// TryAcquire takes a lock or says why not. It waits only for the recall of a lock that is kept unused.
// Waiters come first.
func (l *Locks) TryAcquire(ctx context.Context, r AcquireRequest) (raftfsm.Answer, error) {
	claim, h, lock := r.Claim, r.Handle, r.Handle.Node
	if err := l.files.use(h, namespace.ToWrite, purpose{locking: true, trying: true}); err != nil { // Chubby §2.4, as above
		return l.refuseClaim(ctx, claim, err)
	}
	claim.Try = true
	asked := l.events.awaitRecall(ctx, lock, h.Owner, claim.Mode)
	result, err := l.offers.propose(ctx, func(mu hold) raftfsm.Command {
		mu.pause(l.queues.StepsOf(lock.Name))
		because := l.files.refuseHandle(namespace.Owner{Session: claim.Mutation.Session, Handle: claim.Handle})
		if w := l.firstOvertaken(claim, lock); because == nil && w != nil {
			because = &refusal.Refusal{Cause: refusal.WaitersComeFirst, Holders: []api.SessionID{w.Claim.Mutation.Session}, HolderCount: 1}
		}
		if because != nil {
			return raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: claim.Mutation, Refusal: because}}
		}
		return raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: lock, Claims: []raftfsm.Claim{claim}}}}
	})
	answer := result.Answer
	if err == nil && len(result.Claims) > 0 {
		answer, err = result.Claims[0].Answer, result.Claims[0].Answer.Err()
	}
	refused := answer.Code() == api.LockHeld || err != nil && ctx.Err() != nil // a timed-out request counts, too: a recall reaches no program
	//mutant: if refused && !(r.Quiet || asked && r.Quiet) {
	if refused && !(r.Quiet && asked) {
		mu := l.epoch.mu.holdPatiently()
		defer mu.end()
		//mutant: l.events.tellConflicts(mu, lock, &tables.Waiter{Claim: claim, Lock: lock, Offered: true})
		l.events.tellConflicts(mu, lock, &tables.Waiter{Claim: claim, Lock: lock, Quiet: r.Quiet, Offered: true})
	}
	return answer, err
}

// firstOvertaken returns the first waiter that a newcomer would overtake if it got the lock now. Not even a
// TryAcquire overtakes an earlier writer (decision 8). For a held, conflicting lock it returns nil, because
// the log reports the holders. epoch.mu is held.
func (l *Locks) firstOvertaken(claim raftfsm.Claim, lock namespace.Ref) *tables.Waiter {
	node, err := l.epoch.state().Tree.Resolve(lock)
	if err != nil || len(node.Holders) > 0 && node.Mode.Conflicts(claim.Mode) {
		return nil
	}
	return l.queues.FirstAhead(lock, claim.Mode)
}

// NoteReading records whether a holder that releases its lock says that its sequencer was never read. It
// ignores other callers.
func (l *Locks) NoteReading(h Handle, g api.Generation, unread bool) {
	if node, err := l.epoch.state().Tree.Resolve(h.Node); err == nil && node.Lock == g && node.Holds(h.Owner) {
		l.epoch.reports.usages.unread.note(g, unread)
	}
}

// Release gives a lock back; the same entry grants it to the next waiters.
func (l *Locks) Release(ctx context.Context, mutation session.Mutation, h Handle, generation api.Generation) error {
	_, err := l.offers.propose(ctx, func(mu hold) raftfsm.Command {
		mu.pause(l.queues.StepsOf(h.Node.Name))
		return raftfsm.Command{Release: &raftfsm.Release{
			Mutation: mutation, Lock: h.Node, Handle: h.Owner.Handle, Generation: generation,
			Successions: l.offers.successorsOf(h.Node, func(n *namespace.Node) bool { return n.Lock == generation && n.Holds(h.Owner) }),
		}}
	})
	return err
}

// Cancel withdraws a request. It returns the answer of one that was done before.
func (l *Locks) Cancel(ctx context.Context, mutation session.Mutation) (raftfsm.Answer, error) {
	result, err := l.epoch.commit(ctx, raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: mutation}}, nil)
	return result.Answer, err
}

// SequencerOf returns the sequencer of a grant, with its proof if the level has proofs.
func (l *Locks) SequencerOf(a raftfsm.Answer) (sequencer.Sequencer, error) {
	path, err := a.Lock.Name.In(l.epoch.cell)
	state := l.epoch.state()
	s := sequencer.Sequencer{Cell: state.CellID, Path: path, Mode: a.Mode, Generation: a.Generation}
	if state.HasProofs() {
		s.Proof = proofOf(state, raftfsm.Precondition{Lock: a.Lock.Name, Mode: a.Mode, Generation: a.Generation})
	}
	return s, err
}

// Break revokes a lock from its holders.
func (l *Locks) Break(ctx context.Context, c raftfsm.Revoke) error {
	_, err := l.offers.propose(ctx, func(mu hold) raftfsm.Command {
		mu.pause(l.queues.StepsOf(c.Lock.Name))
		if c.Now {
			state, by := l.epoch.state(), l.epoch.principal(c.Mutation.Session)
			c.Successions = l.offers.successorsOf(c.Lock, func(n *namespace.Node) bool {
				return len(n.Holders) > 0 && state.PermitBreak(n, by)
			})
		}
		return raftfsm.Command{Revoke: &c}
	})
	return err
}

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

// awaitAnswer waits for the answer to a queued request. first is the first progress that queued got, or nil.
func (l *Locks) awaitAnswer(ctx context.Context, w *tables.Waiter, offered bool, queued func(Queued) error) (first *Queued, answer raftfsm.Answer, err error) {
	var last *Queued
	var soon time.Duration
	if offered {
		soon = offerTime
	}
	progress := time.NewTimer(soon)
	defer progress.Stop()
	for {
		select {
		case <-w.Done:
			return first, w.Answer, cmp.Or(w.Err, w.Answer.Err())
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
func (l *Locks) abandonWaiter(w *tables.Waiter) (raftfsm.Answer, error) {
	l.epoch.mu.Lock()
	defer l.epoch.mu.Unlock()
	select {
	case <-w.Done:
		return w.Answer, cmp.Or(w.Err, w.Answer.Err())
	default:
	}
	if l.queues.Get(w.Key()) == w {
		l.queues.RemoveWaiter(w.Key())
	}
	//mutant: return raftfsm.Answer{}, context.Cause(l.epoch.ctx)
	return raftfsm.Answer{}, w.Abandoned(context.Cause(l.epoch.ctx))
}

// offerTime delays the first progress of an offered request: most have the lock by then.
const offerTime = 50 * time.Millisecond

// joinQueue gives a request its place, and offers it the lock if possible. waited is its time at earlier
// masters, by its client's count. w is the request's waiter, perhaps from an earlier copy; with an error it
// is asked. offered says that a command that may grant it is on its way.
func (l *Locks) joinQueue(asked *tables.Waiter, waited time.Duration) (w *tables.Waiter, offered bool, err error) {
	claim, lock := asked.Claim, asked.Lock
	asked.Size = raftfsm.Size(claim)
	mu := l.epoch.mu.holdPatiently()
	defer mu.end()
	mu.pause(l.queues.StepsOf(lock.Name))
	if err := l.files.checkUnfinished(claim.Mutation); err != nil {
		return asked, false, err // a late copy must not delay others
	}
	if r := l.files.refuseHandle(namespace.Owner{Session: claim.Mutation.Session, Handle: claim.Handle}); r != nil {
		return asked, false, r
	}
	asked.Who, asked.Since = l.epoch.principal(claim.Mutation.Session), l.epoch.clock()
	if back := asked.Ticket; back != (Ticket{}) && back.Epoch < l.epoch.number {
		asked.Since = asked.Since.Add(-max(waited, 0))
	}
	w, err = l.queues.Join(asked, l.epoch.number, l.epoch.state().Quota(asked.Who).Waiters)
	if err != nil {
		return asked, false, err
	}
	if !l.offers.askLog(w) {
		l.offers.offerLock(lock.Name)
	}
	offered = w.Offered
	l.events.tellConflicts(mu, lock, nil)
	l.graph.joined(mu, w)
	return w, offered, nil
}

// detachStream ends a stream of a waiter.
func (l *Locks) detachStream(w *tables.Waiter) {
	l.epoch.mu.Lock()
	defer l.epoch.mu.Unlock()
	l.queues.Detach(w, l.epoch.clock().Add(l.sessions.leaseOf(w.Claim.Mutation.Session)))
	l.outbox.PutLock(w.Lock.Name) // the next need not wait for an absent one
}

// queuePosition describes a waiter's place; nil while a grant is on its way.
func (l *Locks) queuePosition(w *tables.Waiter) *Queued {
	l.epoch.mu.Lock()
	defer l.epoch.mu.Unlock()
	if w.Offered || l.queues.Get(w.Key()) != w {
		return nil
	}
	state := l.epoch.state()
	place, waiting := l.queues.Position(w)
	q := &Queued{Ticket: w.Ticket, Place: place, Waiting: waiting, Delayed: l.delays.Left(w.Lock.Name, l.epoch.clock())}
	if node, ok := state.Tree.Get(w.Lock.Name); ok {
		q.Holders, q.MoreHolders = l.epoch.parties(state, node.Holders, api.MaxNamed)
	}
	if place > maxEstimated {
		return q
	}
	for ahead, other := range l.queues.InOrder(w.Lock.Name) {
		if other == w {
			q.Estimate = l.estimateWait(w.Lock.Name, len(q.Holders) > 0, ahead)
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
	delayed := l.delays.Left(name, now)
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
func tellCall(ctx context.Context, w *tables.Waiter, first *Queued, straight bool, began, now session.Instant, err error) {
	answered := false
	select {
	case <-w.Done:
		answered = w.Entry != nil // valid, because done is closed
	default:
	}
	granting, answering := began, time.Duration(0)
	if answered && !straight {
		granting = max(began, w.Granting)
	}
	if answered {
		answering = now.Sub(granting)
	}
	call := steps.Told(ctx, answering)
	if call == nil {
		return
	}
	queue := steps.Step{Kind: steps.Queue, From: began, To: now, Err: err, Mode: w.Claim.Mode}
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
	for _, step := range w.Entry.Steps(granting, now, err) {
		call.Step(step)
	}
}

// Explain returns a call's error with the holders of a lock and the rest of a lock-delay. lock is the call's
// node, if any.
func (l *Locks) Explain(lock namespace.Ref, err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	told, state := *e, l.epoch.state()
	if node, gone := state.Tree.Resolve(lock); gone == nil && len(node.Holders) > 0 && told.Code == api.LockHeld {
		told.Holders, _ = l.epoch.parties(state, node.Holders, api.MaxListed)
		return &told
	}
	if told.Code == api.LockDelayed {
		l.epoch.mu.Lock()
		told.Remaining = l.delays.Left(lock.Name, l.epoch.clock())
		l.epoch.mu.Unlock()
	}
	told.Holders = slices.Clone(told.Holders)
	for i, h := range told.Holders {
		told.Holders[i] = l.epoch.holder(state, namespace.Holder{Owner: namespace.Owner{Session: h.Session}, Reason: h.Reason, SinceUnix: h.SinceUnix})
	}
	return &told
}
