package chubbylock

import (
	"context"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// Guard returns the context for work of the leader, which ends with ctx, and with
// the term: a client.Margin before anybody else can hold the lock, at once when
// the lock is taken away, and when the elector stops leading. Its Err looks at the
// clock, so that work which asks it is not misled by timers that are late.
// context.Cause says why it ended; FromContext has the sequencer.
//
// done is to be called when the work has stopped: until then the lock is not
// given up, however long that takes after the context has ended. (If the work
// does not stop at all, the next has the lock once the process, or the session,
// has ended.) Calling it again does nothing.
//
// It is for OnStartedLeading of electors that Run does not run:
//
//	OnStartedLeading: func(ctx context.Context) {
//		ctx, done := lock.Guard(ctx)
//		defer done()
//		work(ctx)
//	}
//
// If the Lock does not lead, the context has ended.
func (l *Lock) Guard(ctx context.Context) (guarded context.Context, done func()) {
	l.mu.Lock()
	t := l.term
	l.mu.Unlock()
	if t == nil || !t.enter() {
		ended, cancel := context.WithCancelCause(ctx)
		cancel(&api.Error{Code: api.NotHeld, Op: "lead", Path: l.cfg.Path, Message: "this candidate does not lead, or not any more"})
		return ended, func() {}
	}
	return t.guard(ctx)
}

// guard returns the context of one who has entered.
func (t *term) guard(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(t.working, func() { cancel(context.Cause(t.working)) })
	return &guardedContext{Context: ctx, term: t, cancel: cancel}, sync.OnceFunc(func() {
		unhook()
		cancel(context.Canceled)
		t.leave()
	})
}

// guardedContext is a context that looks at the lock before it says that it has
// not ended.
type guardedContext struct {
	context.Context //nolint:containedctx // it is one
	term            *term
	cancel          context.CancelCauseFunc
}

// Err returns nil only while the lock may be relied on.
func (g *guardedContext) Err() error {
	if !g.term.held() || g.term.working.Err() != nil {
		g.cancel(context.Cause(g.term.working))
	}
	return g.Context.Err()
}

type sequencerKey struct{}

// Value knows the sequencer besides what the context knows that was given.
func (g *guardedContext) Value(key any) any {
	if key == (sequencerKey{}) {
		return g.term.lock.Sequencer()
	}
	return g.Context.Value(key)
}

// FromContext returns the sequencer of the term that a context is of: one from
// Guard, one that Run gave to OnStartedLeading, or one made of these. Send it with
// every request to the servers that the lock protects (Chubby §2.4); its Token is
// the term's fencing number, greater than that of every term before.
func FromContext(ctx context.Context) (sequencer.Sequencer, bool) {
	s, ok := ctx.Value(sequencerKey{}).(sequencer.Sequencer)
	return s, ok
}
