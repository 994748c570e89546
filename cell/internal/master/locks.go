package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

// Locks is the master's part that grants, revokes and releases locks, and checks sequencers (Chubby §2.4).
type Locks struct {
	epoch     *epoch
	queues    *queues
	holdTimes *holdTimes
	delays    *delays
	outbox    *outbox
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

// Acquire waits for a lock, as awaitGrant does.
func (l *Locks) Acquire(ctx context.Context, r AcquireRequest) (raftfsm.Answer, error) {
	if err := checkDetection(l.epoch.state()); err != nil && r.Detect {
		return raftfsm.Answer{}, err
	}
	if err := l.files.Use(r.Handle, namespace.ToWrite, true); err != nil { // Chubby §2.4: write permission in either mode
		return l.refuseClaim(ctx, r.Claim, err)
	}
	return l.awaitGrant(ctx, r)
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
		mu.pause(l.queues.stepsOf(lock.Name))
		because := l.files.refuseHandle(namespace.Owner{Session: claim.Mutation.Session, Handle: claim.Handle})
		if w := l.firstOvertaken(claim, lock); because == nil && w != nil {
			because = &refusal.Refusal{Cause: refusal.WaitersComeFirst, Holders: []api.SessionID{w.claim.Mutation.Session}, HolderCount: 1}
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
		//mutant: l.events.tellConflicts(mu, lock, &waiter{claim: claim, lock: lock, offered: true})
		l.events.tellConflicts(mu, lock, &waiter{claim: claim, lock: lock, quiet: r.Quiet, offered: true})
	}
	return answer, err
}

// firstOvertaken returns the first waiter that a newcomer would overtake if it got the lock now. Not even a
// TryAcquire overtakes an earlier writer (decision 8). For a held, conflicting lock it returns nil, because
// the log reports the holders. epoch.mu is held.
func (l *Locks) firstOvertaken(claim raftfsm.Claim, lock namespace.Ref) *waiter {
	node, err := l.epoch.state().Tree.Resolve(lock)
	if err != nil || len(node.Holders) > 0 && node.Mode.Conflicts(claim.Mode) {
		return nil
	}
	return l.queues.firstAhead(lock, claim.Mode)
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
		mu.pause(l.queues.stepsOf(h.Node.Name))
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
		mu.pause(l.queues.stepsOf(c.Lock.Name))
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
