package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// once makes a mutation happen exactly once: it calls do for the first arrival
// of a request, if the preconditions hold, and keeps the answer; a retry gets
// that answer and has no effects (decision 13).
func (s *State) once(m session.Mutation, preconditions []Precondition, do func() Result) Result {
	answer, done, err := s.Sessions.Begin(m)
	switch {
	case err != nil:
		return refuse(err)
	case done:
		return Result{Answer: s.replay(m.Session, answer)}
	}
	var r Result
	//mutant: if err := s.checkPreconditions(preconditions[:0]); err != nil { //by TestAPI of ./e2e
	if err := s.checkPreconditions(preconditions); err != nil {
		r = refuse(err)
	} else {
		r = do()
	}
	s.Sessions.Finish(m, r.Answer)
	return r
}

// replay returns the answer to a retry. It repeats a grant only while the
// session holds the lock and it is not being revoked: the client may have
// acknowledged the revocation already, and would not get the event a second
// time.
func (s *State) replay(id api.SessionID, a Answer) Answer {
	if a.Refusal != nil || a.Generation == 0 {
		return a
	}
	node, err := s.Tree.Resolve(a.Lock)
	//mutant: if true || err == nil && node.Lock == a.Generation && node.Revoked == nil && node.Holds(namespace.Owner{Session: id, Handle: a.Handle}) {
	if err == nil && node.Lock == a.Generation && node.Revoked == nil && node.Holds(namespace.Owner{Session: id, Handle: a.Handle}) {
		return a
	}
	return refused(&refusal.Refusal{Cause: refusal.GrantLost, Generation: a.Generation})
}
