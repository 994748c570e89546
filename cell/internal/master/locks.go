package master

import (
	"context"
	"log/slog"
	"time"

	"github.com/chubbylock/chubby/api"
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
	queues    *queues
	holdTimes *holdTimes
	delays    *delays
	outbox    *outbox
	usages    *usages
	boxes     *mailboxes
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

// recordGrant records a grant for the metrics and the log. asked is the request that caused it: its own, if
// it did not wait.
func (l *Locks) recordGrant(mu hold, claim raftfsm.ClaimResult, asked steps.RequestID) {
	if claim.Answer.Code() != api.OK {
		return
	}
	by := l.files.handles.find(claim.Owner)
	next := holdTime{generation: claim.Answer.Generation}
	if by != nil {
		next.cached, next.delays = by.CachesLock, by.Delay > 0
	}
	l.holdTimes.beginHold(claim.Answer.Lock.Name, next, l.epoch.clock())
	l.events.tellAcquired(mu, claim)
	var waited time.Duration
	if w := l.queues.get(waiterKey{session: claim.Owner.Session, number: claim.Number}); w != nil {
		waited, asked = l.epoch.clock().Sub(w.since), w.request
		l.epoch.metrics.LockGranted(claim.Answer.Lock.Name, waited, w.trace)
	}
	if !claim.Again {
		l.noteGrant(claim, waited, asked)
	}
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
		l.usages.unread.note(g, unread)
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

// noteGrant logs a grant. waited is its time in this master's queue.
func (l *Locks) noteGrant(claim raftfsm.ClaimResult, waited time.Duration, asked steps.RequestID) {
	if !l.epoch.journal.admits(lockGranted, slog.LevelInfo) {
		return
	}
	l.epoch.journal.noteAsked(asked, lockGranted, "a lock is granted",
		slog.String("path", l.epoch.path(claim.Answer.Lock.Name)), slog.String("session", claim.Owner.Session.String()),
		slog.String("principal", l.epoch.principal(claim.Owner.Session)), slog.Uint64("token", uint64(claim.Answer.Generation)),
		slog.String("mode", claim.Answer.Mode.String()), slog.Duration("waited", waited))
}

// noteLeft logs and counts who released or lost locks, and after how long: it runs before recordGrant records
// the next grants.
func (l *Locks) noteLeft(mu hold, left []namespace.Left, asked steps.RequestID) {
	for _, one := range left {
		h := one.Holding
		turn, known := l.holdTimes.current(one.Lock.Name, h.Generation)
		held := l.epoch.clock().Sub(turn.began)
		if box := l.boxes.byID[h.Session]; box != nil && known && !turn.cached && h.Mode == api.Exclusive {
			//mutant: box.usage.held(one.Lock.Name, held, l.usages.unread.has(h.Generation))
			box.usage.held(one.Lock.Name, held, !turn.delays && l.usages.unread.has(h.Generation))
		}
		what, text := lockLost, "a lock is lost"
		if h.End == api.ByClose {
			what, text = lockReleased, "a lock is released"
		}
		if l.epoch.journal.admits(what, slog.LevelInfo) {
			attrs := []slog.Attr{
				slog.String("path", l.epoch.path(one.Lock.Name)), slog.String("session", h.Session.String()), slog.String("principal", h.Principal),
				slog.Uint64("token", uint64(h.Generation)), slog.String("mode", h.Mode.String()), slog.String("reason", h.End.String()),
			}
			if known {
				attrs = append(attrs, slog.Duration("held", held))
			}
			if what == lockLost {
				attrs = append(attrs, slog.Duration("lock_delay", h.Delay))
			}
			l.epoch.journal.noteAsked(asked, what, text, attrs...)
		}
		mu.pause(1)
	}
}
