package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// CleanupTime is how long a cleanup call goes on when its context has been cancelled:
// long enough for a round trip and the commit of an entry, and for the election that
// follows when a master resigns; short enough for a process that is being shut down.
// Cleanup calls are those that give something back, such as Close, Release and
// recipe.Presence.Withdraw.
const CleanupTime = time.Second

// CleanupContext returns the context for a cleanup call, made from the context that
// the caller of the cleanup call passed. Programs defer such calls with the context
// of their whole life, which a signal has ended by the time when they run. If the
// calls failed for that, others could not have what they give back before lease and
// lock-delay have passed, although the program was shut down in an orderly way. So
// when ctx is cancelled, before the call or during it, the call has CleanupTime more;
// and also when the deadline of ctx passed before the call. A deadline that passes
// during the call ends the call: it is for callers that do not want to wait.
//
// Once a cleanup call has spent CleanupTime without an answer, other calls whose
// contexts have ended get no such time until the cell has answered something: a
// program that gives back a hundred locks while the cell is away waits once.
//
// The cleanup calls of this package use CleanupContext themselves. It is for
// functions that are built upon them.
func (c *Client) CleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	late := ctx.Err() != nil
	if ctx.Value(cleanupKey{}) != nil || late && c.session.isUnanswered() {
		return ctx, func() {}
	}
	cleanup, cancel := newCleanupContext(ctx)
	return cleanup, sync.OnceFunc(func() {
		// A deadline that passed during the call means that the caller did not want to wait; it says nothing of the cell.
		if err := cleanup.Err(); err != nil && (late || errors.Is(err, context.Canceled)) {
			c.session.noteUnanswered()
		}
		cancel()
	})
}

// cleanupKey marks the contexts that CleanupContext has made.
type cleanupKey struct{}

// newCleanupContext is CleanupContext without regard to earlier calls that were not
// answered.
func newCleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Value(cleanupKey{}) != nil { // this call is part of another cleanup call
		return ctx, func() {}
	}
	//mutant: if true { return ctx, func() {} }
	ctx = context.WithValue(ctx, cleanupKey{}, true)
	free := context.WithoutCancel(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.WithTimeout(free, CleanupTime)
	}
	done := func() {}
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil {
		free, done = context.WithDeadline(free, deadline)
	}
	cleanup, end := context.WithCancelCause(free)
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(CleanupTime, func() { end(context.Cause(ctx)) })
		context.AfterFunc(cleanup, func() { timer.Stop() })
	})
	return cleanup, func() {
		stop()
		end(nil)
		done()
	}
}

// noteUnanswered notes that a cleanup call was not answered within CleanupTime.
func (s *sessionState) noteUnanswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unansweredAt = s.changed
}

// isUnanswered reports whether nothing was heard from the cell since noteUnanswered.
func (s *sessionState) isUnanswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unansweredAt == s.changed
}
