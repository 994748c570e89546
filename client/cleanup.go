package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// PartingTime is how long a call that gives something back goes on when its
// context has been cancelled: long enough for a round trip and the commit of an
// entry, also for an election of a master that resigned, and short enough for a
// process that is being shut down.
const PartingTime = time.Second

// Parting returns the context for a call that gives something back, such as
// Close, Release or Withdraw, made of the one that its caller passed. A program
// defers such calls with the context of its life, which a signal has ended by the
// time they run; what they give back would be kept from others for lease and
// lock-delay, although the program was shut down in an orderly way. So when ctx is
// cancelled, before the call or during it, the call has PartingTime more; as it has
// if the deadline of ctx passed before the call. A deadline that passes during the
// call ends it then: that is for callers that do not want to wait.
//
// Once a call has spent PartingTime in vain, others whose contexts have ended are
// not given it, until the cell is heard again: a program that gives back a
// hundred locks while the cell is away waits once.
//
// The calls of this package that give something back use it themselves; it is for
// those who build others on them.
func (c *Client) Parting(ctx context.Context) (context.Context, context.CancelFunc) {
	late := ctx.Err() != nil
	if ctx.Value(partingKey{}) != nil || late && c.session.isUnanswered() {
		return ctx, func() {}
	}
	parting, cancel := parting(ctx)
	return parting, sync.OnceFunc(func() {
		// A deadline that passed during the call says that its caller did not want to wait, and nothing of the cell.
		if err := parting.Err(); err != nil && (late || errors.Is(err, context.Canceled)) {
			c.session.noteUnanswered()
		}
		cancel()
	})
}

// partingKey is that of the mark of contexts that Parting has made.
type partingKey struct{}

// parting is Parting, whatever became of others.
func parting(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Value(partingKey{}) != nil { // it is part of a call that gives something back
		return ctx, func() {}
	}
	ctx = context.WithValue(ctx, partingKey{}, true)
	free := context.WithoutCancel(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.WithTimeout(free, PartingTime)
	}
	done := func() {}
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil {
		free, done = context.WithDeadline(free, deadline)
	}
	parting, end := context.WithCancelCause(free)
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(PartingTime, func() { end(context.Cause(ctx)) })
		context.AfterFunc(parting, func() { timer.Stop() })
	})
	return parting, func() {
		stop()
		end(nil)
		done()
	}
}

// inVain takes note that the cell did not answer a call within PartingTime.
func (s *sessionState) noteUnanswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unansweredAt = s.changed
}

// silent reports whether the cell has not been heard since a call was made in vain.
func (s *sessionState) isUnanswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unansweredAt == s.changed
}
