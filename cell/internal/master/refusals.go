package master

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// A request may have been done although its client does not know it: the answer
// was lost, or another copy of it is still on its way to the log. So what only
// this master knows, a full queue, a quota, a closed handle, never refuses a
// numbered request by itself. Such a refusal is proposed, and the log decides: if
// the request was done the client hears so, and if not, no copy of it ever will
// be. That entry is a proof of leadership besides. The error says so (Final), and
// a client takes no other for the outcome of a request that it has sent before.

// Refuse makes a refusal the answer of a request. It returns what the log has
// answered: the result if the request had been done, or else a refusal, this one
// or an earlier one.
func (f *Files) Refuse(ctx context.Context, by session.Mutation, because error) (raftfsm.Result, error) {
	return f.refuseThen(ctx, by, because, func() {})
}

// refuseThen is Refuse. It calls after when the log has answered, or never will: not when
// ctx ends, for the refusal goes its way.
func (f *Files) refuseThen(ctx context.Context, by session.Mutation, because error, after func()) (raftfsm.Result, error) {
	r, err := (*refusal.Refusal)(nil), because
	if code := api.CodeOf(because); code != api.Cancelled && refusal.IsFinal(code) { // else it says nothing of the request itself
		f.epoch.mu.Lock()
		//mutant: err = nil
		err = f.checkUnfinished(by) // or nobody waits for its answer; the log may not know that, and answer it once more
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

// refuseAs is Refuse with a refusal that says something of the request. It calls after when
// the log has answered, or never will.
func (e *epoch) refuseAs(ctx context.Context, by session.Mutation, r *refusal.Refusal, after func()) (raftfsm.Result, error) {
	result, err := e.commit(ctx, raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: by, Refusal: r}}, after)
	return result, cmp.Or(err, result.Answer.Err())
}

// sessionEnded is the error of a call in the name of a session that is not served any
// more. It is SessionExpired only if the log says that the session has ended, or
// has to: until then a later master may know it alive, and this one does not tell
// its client to let go of everything.
func (e *epoch) sessionEnded(id api.SessionID) error {
	switch s, ok := e.state().Sessions.Get(id); {
	case ok && s.Terminating != nil:
		return &refusal.Refusal{Cause: refusal.SessionTerminating, Session: id, By: s.Terminating}
	case ok:
		return api.Errorf(api.Unavailable, "session %v is not extended any more, and its end has not been committed yet: try again", id)
	}
	return sessionExpired(id)
}

// Explain adds to the error of a call what only the master knows: who the holders of a
// lock are, and how long a lock-delay has yet to run. lock is the node that the call was
// about, if it was about one. The error itself is not changed.
func (l *Locks) Explain(lock namespace.Ref, err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	told, state := *e, l.epoch.state()
	if node, gone := state.Tree.Resolve(lock); gone == nil && len(node.Holders) > 0 && told.Code == api.LockHeld {
		told.Holders = nil
		for _, h := range node.Holders[:min(len(node.Holders), api.MaxListed)] {
			told.Holders = append(told.Holders, l.epoch.holder(state, h))
		}
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
