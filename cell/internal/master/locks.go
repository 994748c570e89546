package master

import (
	"context"
	"errors"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
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

// TryAcquire takes a lock or says why not. It waits only for the recall of a lock that is kept unused.
// Waiters come first.
func (l *Locks) TryAcquire(ctx context.Context, r AcquireRequest) (raftfsm.Answer, error) {
	claim, h, lock := r.Claim, r.Handle, r.Handle.Node
	if err := l.files.use(h, namespace.ToWrite, purpose{locking: true, trying: true}); err != nil { // Chubby §2.4, as for Acquire
		return l.refuseClaim(ctx, claim, err)
	}
	claim.Try = true
	asked := l.events.awaitRecall(ctx, lock, h.Owner, claim.Mode)
	result, err := l.offers.propose(ctx, func(mu hold) raftfsm.Command {
		mu.pause(l.queues.StepsOf(lock.Name))
		because := l.files.refuseHandle(claim.By())
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
		//mutant: l.events.tellConflicts(mu, lock, &tables.Waiter{LockRequest: tables.LockRequest{Claim: claim}, Lock: lock, Offered: true})
		l.events.tellConflicts(mu, lock, &tables.Waiter{LockRequest: r.LockRequest, Lock: lock, Offered: true})
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
