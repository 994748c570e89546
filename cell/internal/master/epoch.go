package master

import (
	"context"

	"github.com/chubbylock/chubby/api"
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
	state   func() *raftfsm.State // as of the last applied entry; mu does not guard it
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
	// Then calls then with the result of a proof. then must not block, nor ask for another.
	Then(then func(t0 session.Instant, err error))
	Close(cause error) // ends all proofs
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
