package master

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

// AcquireRequest asks for a lock through a handle.
type AcquireRequest struct {
	LockRequest
	Handle Handle             // an open one
	Queued func(Queued) error // called with its place when that changes, at most once a second; for Acquire alone
}

// Acquire waits in a queue until the request is answered. If Queued fails, or ctx ends, its place is kept for
// one lease, and skipped meanwhile, so that the client may return (decision 8).
func (l *Locks) Acquire(ctx context.Context, r AcquireRequest) (raftfsm.Answer, error) {
	if level := l.epoch.state().Level; r.Detects && level < raftfsm.DeadlockLevel {
		return raftfsm.Answer{}, raftfsm.NeedsLevel(raftfsm.DeadlockLevel, level)
	}
	began := l.epoch.clock()
	w, offered, err := l.joinQueue(&tables.Waiter{
		LockRequest: r.LockRequest, Lock: r.Handle.Node, Size: raftfsm.Size(r.Claim),
		Trace: steps.TraceOf(ctx), Request: steps.RequestOf(ctx),
	}, r.Handle)
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

// joinQueue gives a request its place, and offers it the lock if possible. w is the request's waiter, perhaps
// from an earlier copy; with an error it is asked. offered says that a command that may grant it is on its
// way.
func (l *Locks) joinQueue(asked *tables.Waiter, h Handle) (w *tables.Waiter, offered bool, err error) {
	claim, lock := asked.Claim, asked.Lock
	mu := l.epoch.mu.holdPatiently()
	defer mu.end()
	one, err := l.files.useIn(mu, h, namespace.ToWrite, purpose{locking: true}) // Chubby §2.4: write permission in either mode
	if err != nil {
		return asked, false, err
	}
	mu.pause(l.queues.StepsOf(lock.Name))
	if err := l.files.checkUnfinished(claim.Mutation); err != nil {
		return asked, false, err // a late copy must not delay others
	}
	if r := l.files.refuseHandle(claim.By()); r != nil {
		return asked, false, r
	}
	asked.Who, asked.Since = one.Principal, l.epoch.clock()
	if back := asked.Ticket; back != (Ticket{}) && back.Epoch < l.epoch.number {
		asked.Since = asked.Since.Add(-max(asked.Waited, 0))
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
	if !w.Offered && len(l.queues.Detecting) > 0 {
		left := maxSearch
		l.graph.breakCycles(mu, w, &left)
	}
	return w, offered, nil
}

// offer marks waiters as offered and returns their claims. epoch.mu is held.
func (o *offers) offer(lead []*tables.Waiter) []raftfsm.Claim {
	var claims []raftfsm.Claim
	for _, w := range lead {
		w.Offered, w.Granting = true, o.epoch.clock()
		claims = append(claims, w.Claim)
	}
	return claims
}

// askLog asks the log about a request that needs no free lock, and reports whether it has asked. During a
// Close of the handle it asks only for a refusal: the log might grant a freed lock to the closed handle.
// epoch.mu is held.
func (o *offers) askLog(w *tables.Waiter) bool {
	if w.Offered || w.Refusal == nil && o.queues.IsClosing(w.Claim.By()) || !o.isAnswerable(w) {
		return false
	}
	claims := o.offer([]*tables.Waiter{w})
	if w.Refusal != nil {
		//mutant: o.queues.AnswerWaiter(w.Key(), raftfsm.Answer{Refusal: w.Refusal}); o.epoch.submit(raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: w.Claim.Mutation, Refusal: w.Refusal}})
		o.epoch.submit(raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: w.Claim.Mutation, Refusal: w.Refusal}})
	} else {
		o.epoch.submit(raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: w.Lock, Claims: claims}}})
	}
	return true
}

// isAnswerable reports whether the log can answer a request without a free lock. It is refused or answered,
// its handle holds the lock, its node or session is gone, or a restore has sealed the cell.
func (o *offers) isAnswerable(w *tables.Waiter) bool {
	state := o.epoch.state()
	node, err := state.Tree.Resolve(w.Lock)
	if w.Refusal != nil || err != nil || node.Holds(w.Claim.By()) {
		return true
	}
	_, lives := state.Sessions.Get(w.Claim.Mutation.Session)
	_, sealed := state.Restoring()
	return !lives || sealed || o.epoch.isAnswered(w.Claim.Mutation)
}

// offerLock offers a lock to the waiters that can have it now. epoch.mu is held.
func (o *offers) offerLock(name api.Name) {
	tree := o.epoch.state().Tree
	node, ok := tree.Get(name)
	if !ok || node.Revoked != nil {
		return // nodeRemoved has answered the waiters; a revoked lock is free when its holders let go
	}
	lead := o.queues.Leading(node.Ref(), node.Mode)
	if d, delayed := tree.Delay(name); delayed && len(lead) > 0 && d.Mode.Conflicts(lead[0].Claim.Mode) {
		return
	}
	if len(lead) > 0 {
		o.epoch.submit(raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: node.Ref(), Claims: o.offer(lead)}}})
	}
}

// withdrawOffers unmarks the claims of a command that is no longer on its way. No other code does. Claims
// that still wait may get an offer again. doubt says that the result is unknown. epoch.mu is held.
func (o *offers) withdrawOffers(c raftfsm.Command, doubt bool) {
	for _, next := range c.Successions() {
		for _, claim := range next.Claims {
			if w := o.queues.Get(tables.WaiterKey{Session: claim.Mutation.Session, Number: claim.Mutation.Number}); w != nil {
				//mutant: w.Offered = false
				w.Offered, w.Doubt = false, w.Doubt || doubt
				o.outbox.PutLock(next.Lock.Name)
			}
		}
	}
	if c.Cancel != nil {
		if w := o.refusedWaiter(c.Cancel); w != nil {
			w.Offered = false
		}
	}
}

// refusedWaiter returns the waiter that the master's own command refuses, or nil. epoch.mu is held.
func (o *offers) refusedWaiter(c *raftfsm.Cancel) *tables.Waiter {
	w := o.queues.Get(tables.WaiterKey{Session: c.Mutation.Session, Number: c.Mutation.Number})
	if w == nil || w.Refusal == nil || w.Refusal != c.Refusal {
		return nil
	}
	return w
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

// sequencerProof is the first byte under a proof. Package wire uses others, with the same secret.
const sequencerProof byte = 5

// proofOf returns the proof of a sequencer, by which the cell recognizes its own.
func proofOf(state *raftfsm.State, p raftfsm.Precondition) (proof sequencer.Proof) {
	mac := hmac.New(sha256.New, state.Secret)
	mac.Write(binary.BigEndian.AppendUint64([]byte{sequencerProof, byte(p.Mode)}, uint64(p.Generation)))
	mac.Write([]byte(string(state.CellID) + string(p.Lock)))
	copy(proof[:], mac.Sum(nil))
	return proof
}
