package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	hedgeDelay = 30 * time.Millisecond // without an answer by then, the next replica is asked too

	minPause = 20 * time.Millisecond  // the first pause between two attempts
	maxPause = 500 * time.Millisecond // the longest
)

// retryPause is the pause between two attempts, each about half as long again as the one before: if they
// doubled, a call that waits for an election would on average end too late by half of it. Jitter spreads the
// clients that lost their master together (Chubby §2.9).
type retryPause struct{ last time.Duration }

func (p *retryPause) next() time.Duration {
	p.last = min(max(p.last+p.last/2, minPause), maxPause)
	return p.last/2 + rand.N(p.last/2+1)
}

func (p *retryPause) wait(ctx context.Context) { sleep(ctx, p.next()) }

// sleep waits for that time, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) { sleepWithin(ctx, nil, d) }

// sleepWithin is sleep, until ended is closed, too.
func sleepWithin(ctx context.Context, ended <-chan struct{}, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-ended:
	}
}

// errEnded says that a wait has ended with its session.
var errEnded = errors.New("the session has ended")

// awaitClosed waits until done is closed. It fails if ctx ends before, or if ended is closed, which may be nil.
func awaitClosed(ctx context.Context, ended, done <-chan struct{}) error {
	select {
	case <-done: // usually, and whatever has ended
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	case <-ended:
		return errEnded
	}
}

// endingWith returns ctx, which ends, with the cause, when another context does, too.
func endingWith(ctx, other context.Context) (context.Context, context.CancelFunc) {
	within, cancel := context.WithCancelCause(ctx)
	//mutant: stop := func() bool { return true }
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	if other.Err() != nil {
		cancel(context.Cause(other)) // AfterFunc does that a moment later
	}
	return within, func() { stop(); cancel(nil) }
}

// wakeUp wakes the goroutine that reads a channel of capacity 1.
func wakeUp(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// CleanupTime is how much longer a cleanup call runs after its context was cancelled: enough for a round trip
// and a commit, and for the election after a master resigns; short enough for a shutdown. Cleanup calls give
// something back, such as Close, Release and recipe.Presence.Withdraw.
const CleanupTime = time.Second

// CleanupContext returns the context for a cleanup call, made from its caller's context. Programs defer such
// calls with the context of their whole life, which a signal has ended by then. If the calls failed, others
// would wait for lease and lock-delay, despite the orderly shutdown. So the call has CleanupTime more when
// ctx is cancelled, before the call or during it, or its deadline passed before the call. A deadline that
// passes during the call ends it: that caller does not want to wait.
//
// After a cleanup call has spent CleanupTime without an answer, calls whose contexts have ended get no such
// time until the cell answers again: a program that releases a hundred locks while the cell is away waits
// once.
//
// The cleanup calls of this package use CleanupContext themselves. It is for functions built upon them.
func (c *Client) CleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	late := ctx.Err() != nil
	if ctx.Value(cleanupKey{}) != nil || late && c.session.isUnanswered() {
		return ctx, func() {}
	}
	cleanup, cancel := newCleanupContext(ctx)
	return cleanup, sync.OnceFunc(func() {
		// A deadline that passed during the call says nothing of the cell.
		if err := cleanup.Err(); err != nil && (late || errors.Is(err, context.Canceled)) {
			c.session.noteUnanswered()
		}
		cancel()
	})
}

type cleanupKey struct{}

func newCleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Value(cleanupKey{}) != nil { // part of another cleanup call
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

// noteUnanswered records a cleanup call without an answer within CleanupTime.
func (s *sessionState) noteUnanswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unansweredAt = s.changed
}

func (s *sessionState) isUnanswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unansweredAt == s.changed
}
