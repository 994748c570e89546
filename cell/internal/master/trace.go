package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

func (e *epoch) traceOf(ctx context.Context) steps.Trace {
	if !e.proposer.entries.timed() {
		return nil
	}
	return steps.Of(ctx)
}

// entry is the timing of an entry, written before its commands are observed.
type entry struct {
	commands  int
	from      session.Instant // when it was made
	phases    steps.Phases
	committed bool
}

// steps returns the steps of a call, from the hand-over at queued to the answer by this entry at done.
func (n *entry) steps(queued, done session.Instant, err error) []steps.Step {
	if n == nil { // it was refused before any entry
		return []steps.Step{{Kind: steps.Pending, From: queued, To: done, Err: err}}
	}
	one := steps.Step{Kind: steps.Entry, From: n.from, To: done, Err: err, Commands: n.commands}
	if p := n.phases; n.committed && p.AppendTo != 0 && p.ApplyTo != 0 {
		one.Parts = []steps.Step{
			{Kind: steps.Append, From: p.AppendFrom, To: p.AppendTo},
			{Kind: steps.Quorum, From: p.AppendTo, To: p.ApplyFrom},
			{Kind: steps.Apply, From: p.ApplyFrom, To: p.ApplyTo},
			{Kind: steps.Observe, From: p.ApplyTo, To: done},
		}
	}
	return []steps.Step{{Kind: steps.Pending, From: queued, To: n.from}, one}
}

// firstLook is when a traced change first looks for the sessions it waits for: most have dropped their
// copies. Each later look waits lookAgain times as long.
const (
	firstLook = 20 * time.Millisecond
	lookAgain = 8
)

// look records the sessions that a traced change waits for. The zero look does nothing.
type look struct {
	co    *coherence
	trace steps.Trace
	due   <-chan time.Time // when to look; never, if it is nil
	timer *time.Timer
	after time.Duration
	slow  []api.SessionID
}

// look begins to look for a traced call.
func (co *coherence) look(ctx context.Context) (l look) {
	if l.trace = co.epoch.traceOf(ctx); l.trace != nil {
		l.co, l.after, l.timer = co, firstLook, time.NewTimer(firstLook)
		l.due = l.timer.C
	}
	return l
}

// at records the sessions that still have to drop something.
func (l *look) at(ch *change) {
	l.co.epoch.mu.LockPatient()
	if ids, _ := l.co.slowest(ch); len(ids) > 0 {
		l.slow = ids
	}
	l.co.epoch.mu.Unlock()
	l.after *= lookAgain
	l.timer.Reset(l.after)
}

// tell ends the wait of a call.
func (l *look) tell(ctx context.Context, names []api.Name, began, now session.Instant, err error) {
	step := steps.Step{Kind: steps.Caches, From: began, To: now, Err: err, Slow: l.slow}
	if late := steps.LateOf(ctx, now.Sub(began)); late != nil {
		late.Step(step)
	}
	if l.trace == nil {
		return
	}
	l.timer.Stop()
	for _, name := range names {
		step.Names = append(step.Names, l.co.epoch.path(name))
	}
	l.trace.Step(step)
}

// tellWait tells a trace what a request for a lock waited for. first is its first progress; straight: it was
// offered at once.
func tellWait(t steps.Trace, w *waiter, first *Queued, straight bool, began, now session.Instant, err error) {
	queue := steps.Step{Kind: steps.Queue, From: began, To: now, Err: err, Mode: w.claim.Mode}
	if first != nil {
		queue.Place, queue.Waiting = first.Place, first.Waiting
		for _, holder := range first.Holders {
			queue.Holders = append(queue.Holders, holder.Session)
		}
	}
	answered := false
	select {
	case <-w.done:
		answered = w.entry != nil // valid, because done is closed
	default:
	}
	if !answered {
		t.Step(queue)
		return
	}
	if !straight {
		queue.To, queue.Err = max(began, w.granting), nil
		began = queue.To
		t.Step(queue)
	}
	for _, step := range w.entry.steps(began, now, err) {
		t.Step(step)
	}
}

// answering returns how long a request's answer took after earlier waiters were done; 0 if unknown.
func (w *waiter) answering(began, now session.Instant, straight bool) time.Duration {
	select {
	case <-w.done:
	default:
		return 0
	}
	switch {
	case w.entry == nil: // valid, because done is closed
		return 0
	case straight:
		return now.Sub(began)
	}
	return now.Sub(max(began, w.granting))
}

// await is proposal.await, and tells the call's trace what it waited for.
func (e *epoch) await(ctx context.Context, one *proposal) (raftfsm.Result, error) {
	result, err := one.await(ctx)
	if !e.proposer.entries.timed() || one.queued == 0 {
		return result, err
	}
	now := e.clock()
	for _, t := range []steps.Trace{e.traceOf(ctx), steps.LateOf(ctx, now.Sub(one.queued))} {
		switch {
		case t == nil:
		case ctx.Err() != nil && err != nil: // the proposer may still change one
			t.Step(steps.Step{Kind: steps.Pending, From: one.queued, To: now, Err: err})
		default:
			for _, step := range one.entry.steps(one.queued, now, err) {
				t.Step(step)
			}
		}
	}
	return result, err
}
