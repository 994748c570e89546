package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// once makes a mutation happen exactly once: for a request's first arrival it calls do, if the preconditions
// hold, and keeps the answer. A retry gets that answer (decision 13).
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

// operate is once for what only an operator may do.
func (s *State) operate(m session.Mutation, do func(operator string) Result) Result {
	return s.once(m, nil, func() Result {
		by := s.principal(m.Session)
		//mutant: if err := s.PermitOperator(by); false { _ = err
		if err := s.PermitOperator(by); err != nil {
			return refuse(err)
		}
		return do(by)
	})
}

// replay returns the answer to a retry. It repeats a grant only while the session holds the lock without a
// pending revocation: the client may have acknowledged that, and would not get the event again.
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
