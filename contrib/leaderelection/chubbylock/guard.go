package chubbylock

import (
	"context"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// Guard returns the context for work of the leader. It ends with ctx, and with the leadership: a
// client.Margin before another can hold the lock, at once when the lock is taken away, and when the
// elector stops leading. Its Err reads the clock, so that it is right even if timers are late.
// context.Cause says why it ended; FromContext returns the sequencer.
//
// Call done when the work has stopped: until then the lock is not released, however long that takes
// after the context has ended. (If the work never stops, another candidate gets the lock after the
// process, or the session, has ended.) Calling done again does nothing.
//
// Guard is for OnStartedLeading of electors that Run does not run:
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

// guard returns the context of work that has entered.
func (t *term) guard(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(sequencer.NewContext(ctx, t.lock))
	unhook := context.AfterFunc(t.working, func() { cancel(context.Cause(t.working)) })
	return &guardedContext{Context: ctx, term: t, cancel: cancel}, sync.OnceFunc(func() {
		unhook()
		cancel(context.Canceled)
		t.leave()
	})
}

// guardedContext is a context that checks the lock before it reports that it has not ended.
type guardedContext struct {
	context.Context //nolint:containedctx // it is one
	term            *term
	cancel          context.CancelCauseFunc
}

// Err returns nil only while the lock can be relied on.
func (g *guardedContext) Err() error {
	if !g.term.held() || g.term.working.Err() != nil {
		g.cancel(context.Cause(g.term.working))
	}
	return g.Context.Err()
}

// FromContext returns the sequencer of the leadership that a context belongs to: a context
// from Guard, the one that Run gave to OnStartedLeading, or one made of these. Send it with
// every request to the servers that the lock protects (Chubby §2.4). Its Token is the
// leadership's fencing token, greater than that of every leadership before.
func FromContext(ctx context.Context) (sequencer.Sequencer, bool) {
	return sequencer.FromContext(ctx)
}
