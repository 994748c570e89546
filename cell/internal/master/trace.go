package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/session"
)

// entry is the timing of an entry, written before its commands are observed.
type entry struct {
	commands int
	from     session.Instant // when it was made
	phases   steps.Phases    // zero if it was not committed
}

// steps returns the steps of a call, from the hand-over at queued to the answer by this entry at done.
func (n *entry) steps(queued, done session.Instant, err error) []steps.Step {
	if n == nil { // it was refused before any entry
		return []steps.Step{{Kind: steps.Pending, From: queued, To: done, Err: err}}
	}
	one := steps.Step{Kind: steps.Entry, From: n.from, To: done, Err: err, Commands: n.commands}
	if p := n.phases; p.AppendTo != 0 && p.ApplyTo != 0 {
		one.Parts = []steps.Step{
			{Kind: steps.Append, From: p.AppendFrom, To: p.AppendTo},
			{Kind: steps.Quorum, From: p.AppendTo, To: p.ApplyFrom},
			{Kind: steps.Apply, From: p.ApplyFrom, To: p.ApplyTo},
			{Kind: steps.Observe, From: p.ApplyTo, To: done},
		}
	}
	return []steps.Step{{Kind: steps.Pending, From: queued, To: n.from}, one}
}

// tell tells the call of a request for a lock what it waited for. first is its first progress; straight: it
// was offered at once. The call was slow if the answer took long after earlier waiters were done.
func (w *waiter) tell(ctx context.Context, first *Queued, straight bool, began, now session.Instant, err error) {
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
	for _, step := range w.entry.steps(granting, now, err) {
		call.Step(step)
	}
}
