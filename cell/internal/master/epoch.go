package master

import (
	"cmp"
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// epoch is what all parts of a master share. Fields that New sets do not change.
type epoch struct {
	number  api.Epoch
	cell    string
	clock   session.Clock
	state   func() *raftfsm.State // as of the last applied entry
	fence   prover
	reports *reports
	ctx     context.Context // ends with the epoch; its cause is NotMaster

	proposer   *proposer
	unproposed func(c raftfsm.Command, doubt bool) // observer.unproposed

	mu pausingMutex // guards the tables; its order with others is in doc.go
}

// prover proves that this replica is still the master. A proof began at t0, after the call of Prove; at t0 no
// later master had been elected.
type prover interface {
	Prove(ctx context.Context) (t0 session.Instant, err error)
	Close(cause error) // ends all proofs
}

// handOver hands a command to the proposer; nothing else does. Each command is then observed once, or
// unproposed once. So one place unmarks its waiters, also after a refusal. epoch.mu is held.
func (e *epoch) handOver(one *proposal) error {
	one.queued = e.clock()
	err := e.proposer.enqueue(one)
	if err != nil {
		//mutant: _ = e.unproposed
		e.unproposed(one.command, false)
	}
	return err
}

// submit proposes the master's own command. epoch.mu is held.
func (e *epoch) submit(c raftfsm.Command) { _ = e.handOver(newProposal(c, e.state().Level, true, nil)) }

// commit proposes a command and waits for its result. It calls after, which may be nil, once the command is
// observed or never will be; before it returns, unless ctx ends first.
func (e *epoch) commit(ctx context.Context, c raftfsm.Command, after func()) (raftfsm.Result, error) {
	one := newProposal(c, e.state().Level, c.Remove != nil, after)
	one.request = steps.RequestOf(ctx)
	e.mu.Lock()
	err := e.handOver(one)
	e.mu.Unlock()
	if err != nil {
		one.finish(raftfsm.Result{}, err)
	}
	return e.await(ctx, one)
}

// propose is commit, with an error of the answer as its error.
func (e *epoch) propose(ctx context.Context, c raftfsm.Command, after func()) (raftfsm.Result, error) {
	result, err := e.commit(ctx, c, after)
	return result, cmp.Or(err, result.Answer.Err())
}

// await is proposal.await, and tells the call what it waited for.
func (e *epoch) await(ctx context.Context, one *proposal) (raftfsm.Result, error) {
	result, err := one.await(ctx)
	now := e.clock()
	if call := steps.Told(ctx, now.Sub(one.queued)); call != nil {
		var by *steps.EntryTimes
		if err == nil || ctx.Err() == nil { // else the proposer may still change one
			by = one.entry
		}
		for _, step := range by.Steps(one.queued, now, err) {
			call.Step(step)
		}
	}
	return result, err
}

// path returns the path of a name in this cell, for people and clients.
func (e *epoch) path(name api.Name) string { return "/" + api.Root + "/" + e.cell + string(name) }

// holder describes a holder for people.
func (e *epoch) holder(state *raftfsm.State, h namespace.Holder) api.Holder {
	described := api.Holder{Session: h.Session, Reason: h.Reason, SinceUnix: h.SinceUnix, Owner: h.DeclaredOwner}
	if s, ok := state.Sessions.Get(h.Session); ok {
		described.Principal, described.Host, described.PID = s.Principal, s.Host, s.PID
	}
	return described
}

// parties describes at most most holders, and counts the others.
func (e *epoch) parties(state *raftfsm.State, holders []namespace.Holder, most int) (list []api.Holder, more int) {
	some := holders[:min(len(holders), most)]
	for _, h := range some {
		list = append(list, e.holder(state, h))
	}
	return list, len(holders) - len(some)
}

// principal returns a session's principal.
func (e *epoch) principal(id api.SessionID) string {
	if s, ok := e.state().Sessions.Get(id); ok {
		return s.Principal
	}
	return ""
}

// Log is the replicated log, as a master needs it.
type Log interface {
	// Append puts an entry into the log, and returns its commands' results once it is applied. After an error
	// of code NotMaster the entry is not in the log, nor ever will be; after any other it may.
	Append(entry []byte) ([]raftfsm.Result, error)
}

// entries puts an epoch's entries into the log, one at a time, in a turn of the proposer (proposer.turn).
type entries struct {
	log   Log
	epoch api.Epoch
	wall  func() int64

	clock  session.Clock
	phases func() steps.Phases // of the last applied entry
	last   *steps.EntryTimes   // the newest; nil before the first
}

// append is AppendEntry, timed.
func (n *entries) append(commands []raftfsm.Encoded) ([]raftfsm.Result, error) {
	now := &steps.EntryTimes{Commands: len(commands), From: n.clock()}
	results, err := AppendEntry(n.log, n.epoch, n.wall(), commands)
	if err == nil {
		now.Phases = n.phases()
	}
	n.last = now
	return results, err
}

// AppendEntry puts commands into the log as one entry, and returns their results.
func AppendEntry(log Log, epoch api.Epoch, wall int64, commands []raftfsm.Encoded) ([]raftfsm.Result, error) {
	data, err := raftfsm.JoinEntry(epoch, wall, commands)
	if err != nil {
		return nil, err
	}
	results, err := log.Append(data)
	if err == nil && len(results) != len(commands) {
		return nil, api.Errorf(api.Uncertain, "the entry's results are missing")
	}
	return results, err
}
