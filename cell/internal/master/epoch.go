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

// epoch is what all parts of a master have in common: which epoch of which cell it is,
// the replicated state, the log, the proof of leadership, and the one mutex. What is set
// by New does not change.
type epoch struct {
	number  api.Epoch
	cell    string
	clock   session.Clock
	state   func() *raftfsm.State // as of the last entry applied
	fence   prover
	journal *journal
	metrics Metrics
	ctx     context.Context // ends with the epoch; its cause is NotMaster

	proposer   *proposer
	unproposed func(c raftfsm.Command, doubt bool) // observer.unproposed

	mu pausingMutex // guards the tables; see Master for its order with others
}

// prover proves that this replica is still the master: a proof began at t0 and
// not before prove was called, and at t0 no later master had been elected.
type prover interface {
	Prove(ctx context.Context) (t0 session.Instant, err error)
	Close(cause error) // no proof is given any more
}

// handOver hands a command to the proposer, and is the only way there. Every command
// is then observed once, or unproposed once: so what was marked for it, a waiter as
// offered, is unmarked in one place, and a command that was refused leaves nothing
// behind. epoch.mu is held.
func (e *epoch) handOver(one *proposal) error {
	if e.proposer.entries.timed() {
		one.queued = e.clock()
	}
	err := e.proposer.enqueue(one)
	if err != nil {
		//mutant: _ = e.unproposed
		e.unproposed(one.command, false)
	}
	return err
}

// submit proposes a command of the master's own. epoch.mu is held.
func (e *epoch) submit(c raftfsm.Command) { _ = e.handOver(newProposal(c, e.state().Level, true, nil)) }

// commit proposes a command and waits for its result. after is called when the
// command has been observed, or never will be, and before commit returns, unless
// ctx ends first; it may be nil.
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

// propose commits a command for a caller and returns its answer's error, if it
// has one, as the error.
func (e *epoch) propose(ctx context.Context, c raftfsm.Command) (raftfsm.Result, error) {
	result, err := e.commit(ctx, c, nil)
	return result, cmp.Or(err, result.Answer.Err())
}

// proposeBuilt is propose of a command that build makes with epoch.mu held, under which
// it is handed over as well: what it names, as successors, is on its way before
// anybody else looks. It may pause before that.
func (e *epoch) proposeBuilt(ctx context.Context, build func() raftfsm.Command) (raftfsm.Result, error) {
	e.mu.LockPatient()
	c := build()
	//mutant: one := newProposal(c, e.state().Level, c.EndSessions != nil, nil)
	one := newProposal(c, e.state().Level, false, nil)
	one.request = steps.RequestOf(ctx)
	err := e.handOver(one)
	e.mu.Unlock()
	if err != nil {
		return raftfsm.Result{}, err
	}
	result, err := e.await(ctx, one)
	return result, cmp.Or(err, result.Answer.Err())
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

// principal returns whom a session belongs to.
func (e *epoch) principal(id api.SessionID) string {
	if s, ok := e.state().Sessions.Get(id); ok {
		return s.Principal
	}
	return ""
}
