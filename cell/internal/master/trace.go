package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// traceOf returns the trace of a call, or nil.
func (e *epoch) traceOf(ctx context.Context) steps.Trace {
	if !e.proposer.entries.timed() {
		return nil
	}
	return steps.Of(ctx)
}

// entry is how an entry came about. It is written before its commands are observed, and not changed afterwards.
type entry struct {
	commands  int
	from      session.Instant // when it was put together
	phases    steps.Phases
	committed bool
}

// steps are the parts of a call whose command was handed over at queued, and was answered at done by this entry.
func (n *entry) steps(queued, done session.Instant, err error) []steps.Step {
	if n == nil { // it was refused before it was in any
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

// firstLook is after what time a traced change that waits for caches is first looked at: most have been dropped by then. The time
// to the next look is lookAgain times as long.
const (
	firstLook = 20 * time.Millisecond
	lookAgain = 8
)

// look is who is waited for by a change that is traced. Of one that is not, it is zero, and does nothing.
type look struct {
	co    *coherence
	trace steps.Trace
	due   <-chan time.Time // when to look; never, if it is nil
	timer *time.Timer
	after time.Duration
	slow  []api.SessionID
}

// look begins to look for the trace of a call, if there is one.
func (co *coherence) look(ctx context.Context) (l look) {
	if l.trace = co.epoch.traceOf(ctx); l.trace != nil {
		l.co, l.after, l.timer = co, firstLook, time.NewTimer(firstLook)
		l.due = l.timer.C
	}
	return l
}

// at looks who has to drop something yet.
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

// tellWait tells a trace what a request for a lock has waited for. first is how things stood when it was first told; straight says
// that a command which was to grant it was on its way at once.
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
		answered = w.entry != nil // of what comes before, nothing is read until done is closed
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

// answering is how long the answer to a request that began at a moment has taken since it was not kept waiting any more by who was
// before it; 0 if it has none, or that is not known.
func (w *waiter) answering(began, now session.Instant, straight bool) time.Duration {
	select {
	case <-w.done:
	default:
		return 0
	}
	switch {
	case w.entry == nil: // of what comes before, nothing is read until done is closed
		return 0
	case straight:
		return now.Sub(began)
	}
	return now.Sub(max(began, w.granting))
}

// await is one.await, and tells the trace of the call what it has waited for.
func (e *epoch) await(ctx context.Context, one *proposal) (raftfsm.Result, error) {
	result, err := one.await(ctx)
	if !e.proposer.entries.timed() || one.queued == 0 {
		return result, err
	}
	now := e.clock()
	for _, t := range []steps.Trace{e.traceOf(ctx), steps.LateOf(ctx, now.Sub(one.queued))} {
		switch {
		case t == nil:
		case ctx.Err() != nil && err != nil: // one may be changed yet
			t.Step(steps.Step{Kind: steps.Pending, From: one.queued, To: now, Err: err})
		default:
			for _, step := range one.entry.steps(one.queued, now, err) {
				t.Step(step)
			}
		}
	}
	return result, err
}
