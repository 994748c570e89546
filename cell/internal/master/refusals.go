package master

import (
	"context"
	"errors"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// A request may have been done unknown to its client: the answer was lost, or a copy is on its way to the
// log. So the master alone never refuses a numbered request for what only it knows: a full queue, a quota, a
// closed handle. It proposes the refusal, and the log decides. If the request was done, the client gets that
// answer; if not, no copy ever will be. The entry also proves leadership. The error is marked Final; a client
// accepts no other for a retried request.

// Refuse makes a refusal the answer of a request. It returns the log's answer: the result if it was done,
// else this or an earlier refusal.
func (f *Files) Refuse(ctx context.Context, by session.Mutation, because error) (raftfsm.Result, error) {
	return f.refuseThen(ctx, by, because, func() {})
}

// refuseThen is Refuse, and calls after when the log has answered, or never will. The end of ctx does not
// stop the refusal.
func (f *Files) refuseThen(ctx context.Context, by session.Mutation, because error, after func()) (raftfsm.Result, error) {
	r, err := (*refusal.Refusal)(nil), because
	if code := api.CodeOf(because); code != api.Cancelled && refusal.IsFinal(code) { // others say nothing about the request itself
		f.epoch.mu.Lock()
		//mutant: err = nil
		err = f.checkUnfinished(by) // no client waits for its answer; the log may not know that, and answer once more
		f.epoch.mu.Unlock()
	}
	if err == nil && !errors.As(because, &r) {
		err = because // the log keeps causes, not words; without one, the error is not final
	}
	if err != nil {
		after()
		return raftfsm.Result{}, err
	}
	//mutant: after(); return raftfsm.Result{}, because
	return f.epoch.refuseAs(ctx, by, r, after)
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

// Explain returns a call's error with the holders of a lock and the rest of a lock-delay. lock is the call's
// node, if any.
func (l *Locks) Explain(lock namespace.Ref, err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	told, state := *e, l.epoch.state()
	if node, gone := state.Tree.Resolve(lock); gone == nil && len(node.Holders) > 0 && told.Code == api.LockHeld {
		told.Holders, _ = l.epoch.parties(state, node.Holders, api.MaxListed)
		return &told
	}
	if told.Code == api.LockDelayed {
		l.epoch.mu.Lock()
		told.Remaining = l.delays.left(lock.Name, l.epoch.clock())
		l.epoch.mu.Unlock()
	}
	told.Holders = slices.Clone(told.Holders)
	for i, h := range told.Holders {
		told.Holders[i] = l.epoch.holder(state, namespace.Holder{Owner: namespace.Owner{Session: h.Session}, Reason: h.Reason, SinceUnix: h.SinceUnix})
	}
	return &told
}
