package master

import (
	"cmp"
	"context"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
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

// isAnswered reports whether a request was done. Its retry goes through the log, for the same answer.
func (e *epoch) isAnswered(mutation session.Mutation) bool {
	s, ok := e.state().Sessions.Get(mutation.Session)
	if !ok {
		return false
	}
	at, found := requestAt(s, mutation.Number)
	return found && s.Open[at].Done
}

func requestAt(s *session.Session[raftfsm.Answer], number api.RequestNumber) (at int, found bool) {
	return slices.BinarySearchFunc(s.Open, number, func(r session.Request[raftfsm.Answer], n api.RequestNumber) int {
		return cmp.Compare(r.Number, n)
	})
}

// refuseAs is refuseThen for a refusal about the request itself.
func (e *epoch) refuseAs(ctx context.Context, by session.Mutation, r *refusal.Refusal, after func()) (raftfsm.Result, error) {
	return e.propose(ctx, raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: by, Refusal: r}}, after)
}

// sessionEnded returns the error for a session that is not served. It is SessionExpired only if the log says
// that the session has ended or has to. Until then a later master may keep it alive, and its client must not
// let go of everything.
func (e *epoch) sessionEnded(id api.SessionID) error {
	switch s, ok := e.state().Sessions.Get(id); {
	case ok && s.Terminating != nil:
		return &refusal.Refusal{Cause: refusal.SessionTerminating, Session: id, By: s.Terminating}
	case ok:
		return api.Errorf(api.Unavailable, "session %v is not extended any more, and its end has not been committed yet: try again", id)
	}
	return sessionExpired(id)
}

func sessionExpired(id api.SessionID) error {
	return api.Errorf(api.SessionExpired, "session %v has ended; open a new one", id)
}

// look returns the current node of a handle.
func (e *epoch) look(h Handle) (*namespace.Node, error) {
	state := e.state()
	if _, ok := state.Sessions.Get(h.Owner.Session); !ok {
		return nil, sessionExpired(h.Owner.Session)
	}
	for _, g := range h.Preconditions() {
		if err := state.CheckPrecondition(g); err != nil {
			return nil, err
		}
	}
	return state.Tree.Resolve(h.Node)
}

// Epoch returns its epoch.
func (m *Master) Epoch() api.Epoch { return m.epoch.number }

// Cell returns the cell's name.
func (m *Master) Cell() string { return m.epoch.cell }

// Context returns a context that ends with the epoch.
func (m *Master) Context() context.Context { return m.epoch.ctx }

// Path returns the path of a name in this cell, for people and clients.
func (m *Master) Path(name api.Name) string { return m.epoch.path(name) }

// State returns the replicated state of this replica, without a proof of leadership.
func (m *Master) State() *raftfsm.State { return m.epoch.state() }

// NodeNamed returns the node of a name, or zero, without a proof of leadership.
func (m *Master) NodeNamed(name api.Name) namespace.Ref {
	if node, there := m.epoch.state().Tree.Get(name); there {
		return node.Ref()
	}
	return namespace.Ref{}
}
