package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
)

// The pauses before CMD runs again (--retry): the first and the longest. Each is up to twice the last, until
// CMD has run for the longest.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// campaign takes what is to be held. It gets a context for waiting, and one that --timeout limits.
type campaign func(ctx, bound context.Context, c *client.Client) (*heldLock, error)

// runWork takes the lock by a campaign, runs the command or holds the lock, and gives it up. With --retry it
// repeats this in a new session after a loss.
func (o *workOptions) runWork(ctx context.Context, take campaign) error {
	asked := context.WithoutCancel(ctx)
	if len(o.argv) > 0 {
		o.signals = supervise.Listen()
		var forget context.CancelFunc
		asked, forget = signal.NotifyContext(asked, endingSignals()...)
		defer forget()
	}
	return o.withBusyCode(o.repeat(ctx, asked, func(ctx context.Context) error { return o.runOnce(ctx, asked, take) }))
}

// repeat runs once. With --retry it repeats after the loss of the lock, or of the waiting session, until CMD
// ends by itself or a signal requests the end. asked always ends with that signal; after SIGHUP, ctx does not
// until interrupts are caught again.
func (o *workOptions) repeat(ctx, asked context.Context, once func(ctx context.Context) error) error {
	pause := firstPause
	for lost := false; ; {
		ran := stopwatch()
		err := once(ctx)
		lost = lost || wasLost(err) || isLost(err)
		if !o.retry || asked.Err() != nil || !lost || !isPassing(err) {
			return err
		}
		ctx = o.unlessReloaded(ctx)
		if ran() >= longestPause {
			pause = firstPause
		}
		wait := pause/2 + rand.N(pause/2) // random, for when a cell has been away
		what := "it is waited for again"
		if wasLost(err) {
			what = "CMD is run again"
			o.begun = nil // --wait is for each wait, across sessions
		}
		if o.waits && o.begun != nil {
			left := o.timeToOpen()
			if left <= 0 {
				return o.unansweredWait()
			}
			wait = min(wait, max(left-minTimeToOpen, firstPause/4)) // so that it asks the cell once more in time
		}
		o.warn(fmt.Sprintf("%v; %s under a new session in %s (--retry)", err, what, term.Roughly(wait)))
		if !sleep(ctx, wait) {
			return interruptOr(ctx, context.Cause(ctx))
		}
		if asked.Err() != nil { // between the check above and the new ctx
			return err
		}
		pause = min(2*pause, longestPause)
	}
}

// minTimeToOpen is how long opening a session may take, however short --wait is: --wait is for the lock.
const minTimeToOpen = 2 * time.Second

// withTimeToOpen limits the opening of the session. --wait counts from the beginning, across all sessions of
// one wait, but leaves time for a cell that answers.
func (o *workOptions) withTimeToOpen(bound context.Context) (context.Context, context.CancelFunc) {
	flag, limit := o.endOfOpening()
	if flag != "--wait" {
		return context.WithCancel(bound)
	}
	return context.WithTimeoutCause(bound, limit, o.unansweredWait())
}

// endOfOpening returns which flag ends the opening of the session, and after how long.
func (o *workOptions) endOfOpening() (flag string, limit time.Duration) {
	if limit = o.timeToOpen(); o.waits && limit < o.timeout {
		return "--wait", limit
	}
	return "--timeout", o.timeout
}

// timeToOpen is the rest of --wait for opening a session.
func (o *workOptions) timeToOpen() time.Duration { return max(o.wait, minTimeToOpen) - o.begun() }

// unansweredWait is the error when --wait ends while the cell is away.
func (o *workOptions) unansweredWait() error {
	return &exitError{exitWaited, unanswered{o.waitRanOut(o.path, "the cell has not answered")}}
}

// wasLost reports the loss of the lock, as opposed to a CMD with the same exit code.
func wasLost(err error) bool {
	var own *exitError
	return errors.As(err, &own) && own.code == exitLost && own.err != nil
}

// isPassing reports whether --retry continues after an error: the lock was lost, or the waiting session, or the
// cell has stopped answering.
func isPassing(err error) bool {
	var own *exitError
	if wasLost(err) || errors.As(err, &own) {
		return wasLost(err)
	}
	code := exitCode(err)
	return code == exitUnavailable || code == exitUncertain || isLost(err)
}

// unlessReloaded returns a context that interrupts end, in place of one that SIGHUP has ended. While CMD ran,
// SIGHUP was for CMD: many programs reload their configuration on it.
func (o *workOptions) unlessReloaded(ctx context.Context) context.Context {
	var signal interrupted
	if errors.As(context.Cause(ctx), &signal) && signal.signal == syscall.SIGHUP && o.rearm != nil {
		return o.rearm()
	}
	return ctx
}

// endingSignals are the interrupts that ask CMD to end. SIGHUP is excluded, because many programs reload their
// configuration on it.
func endingSignals() []os.Signal {
	return slices.DeleteFunc(supervise.Interrupts(), func(s os.Signal) bool { return s == syscall.SIGHUP })
}

// sleep waits; false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
