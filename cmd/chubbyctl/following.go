package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
	"github.com/chubbylock/chubby/internal/tenure"
)

// final ends a command that follows something; it does not go on in another session.
type final struct{ error }

// follower is what a command follows, in one session after another.
type follower struct {
	// sessions serves followers that change sessions by themselves; set before begin is called.
	sessions client.Sessions
	// begin opens what is followed; --timeout limits it in the first session. May be nil.
	begin func(ctx context.Context, c *client.Client) error
	// follow runs until ctx ends, also with the session, or returns a final. gap is why the last session ended,
	// after which events may be missing; nil in the first session.
	follow func(ctx context.Context, c *client.Client, gap error) error
}

// withFollowing follows something until an interrupt or a final. After the end of a session, for example by
// suspend or a long outage, it uses another.
func (g *globals) withFollowing(ctx context.Context, path api.Path, f *follower) error {
	bound, cancel := g.withTimeout(ctx)
	defer cancel()
	report := g.reportWaitUntil(bound, path.Cell(), path, "--timeout", g.timeout)
	defer report.stop()
	keeper, err := client.Keep(ctx, g.config(path.Cell()))
	if err != nil {
		return err
	}
	f.sessions = keeper
	var begun *client.Client // the last session in which it began
	defer func() { g.sayFarewell(ctx, begun, closeBound, keeper.Close) }()
	begin := func(ctx context.Context, c *client.Client) error {
		if f.begin != nil {
			if err := f.begin(ctx, c); err != nil {
				return err
			}
		}
		begun = c
		return nil
	}
	if err := keeper.Do(bound, func(c *client.Client) error { return begin(bound, c) }); err != nil {
		return report.explain(err)
	}
	report.stop()
	life, end := context.WithCancel(ctx)
	defer end()
	var last *final
	err = keeper.Renew(life, func(ctx context.Context, c *client.Client) error {
		var gap error
		if c != begun {
			gap = begun.Err()
			if err := begin(ctx, c); err != nil {
				return err
			}
		}
		err := f.follow(ctx, c, gap)
		if one := (final{}); errors.As(err, &one) {
			last = &one
			end() // also if the session has just ended
		}
		return err
	})
	switch {
	case last != nil:
		return last.error
	case hasEnded(ctx):
		return nil
	}
	return err
}

// followEach reports everything that a watch of a node yields, in one session after another.
func followEach[T any](
	ctx context.Context, g *globals, path api.Path, watch func(context.Context, *client.Client, string) iter.Seq2[T, error], tell func(T) error,
) error {
	return g.withFollowing(ctx, path, &follower{follow: func(ctx context.Context, c *client.Client, gap error) error {
		if gap != nil {
			g.notice(g.stderr, describeGap(gap))
		}
		for one, err := range watch(ctx, c, path.String()) {
			if err != nil {
				return err
			}
			if err := tell(one); err != nil {
				return final{err}
			}
		}
		return nil
	}})
}

// describeGap says why a session has ended, and what that means for followers.
func describeGap(gap error) string {
	why := ""
	if cause := client.Cause(0); errors.As(gap, &cause) {
		why = " (" + cause.Error() + ")"
	}
	return fmt.Sprintf("the session ended%s, and another was opened: what came and went meanwhile is not told", why)
}

// minEvery is the minimum interval of looks at a cell.
const minEvery = 200 * time.Millisecond

type repetition struct {
	every time.Duration
	times int
}

func (r *repetition) flags(cmd *cobra.Command, unless string) {
	cmd.Flags().DurationVar(&r.every, "every", 2*time.Second, "the time between two looks")
	cmd.Flags().IntVar(&r.times, "times", 0, "how many looks; 0 goes on until Ctrl-C"+unless)
}

func (r *repetition) validate() error {
	switch {
	case r.every < minEvery:
		return usagef("--every %v: want %v or longer", r.every, minEvery)
	case r.times < 0:
		return usagef("--times %d: want 1 or more, or 0 to go on until Ctrl-C", r.times)
	}
	return nil
}

// run repeats look and show until Ctrl-C, which is no failure. It reports a failed look after the first, and
// goes on: that covers a fail-over.
func (r *repetition) run(cmd *cobra.Command, look, show func() error) error {
	for n := 1; ; n++ {
		err := look()
		switch {
		case hasEnded(cmd.Context()):
			return nil
		case err != nil && (n == 1 || n == r.times):
			return err
		case err != nil:
			term.Remark(cmd.ErrOrStderr(), "%v; trying again", err)
		default:
			if err := show(); err != nil {
				return err
			}
		}
		if n == r.times {
			return nil
		}
		if !sleep(cmd.Context(), r.every) {
			return nil
		}
	}
}

// runScreens is run with text for people; on a terminal each screen replaces the last.
func (r *repetition) runScreens(cmd *cobra.Command, look func() error, draw func(term.Style) string) error {
	style, again := term.StyleOf(cmd.OutOrStdout()), false
	return r.run(cmd, look, func() error {
		text := draw(style)
		switch {
		case style.Terminal && r.times != 1:
			text = "\x1b[H\x1b[2J" + text // clears the screen, from the upper left corner
		case again:
			text = "\n" + text
		}
		again = true
		_, err := io.WriteString(cmd.OutOrStdout(), text)
		return err
	})
}

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
		if reload := (interrupted{}); errors.As(context.Cause(ctx), &reload) && reload.signal == syscall.SIGHUP && o.rearm != nil {
			ctx = o.rearm() // SIGHUP was for CMD: many programs reload their configuration on it
		}
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
			wait = min(wait, pauseWithin(left))
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

// pauseWithin is the longest pause in what is left of --wait: the cell is asked once more in time, and not again and again
// at the end, and the wait ends when it should.
func pauseWithin(left time.Duration) time.Duration {
	return min(left, max(left-minTimeToOpen, firstPause/4))
}

// opening limits the opening of the session, and reports what that waits for. --wait counts from the beginning, across
// all sessions of one wait, but leaves time for a cell that answers.
func (o *workOptions) opening(bound context.Context) (ctx context.Context, cancel context.CancelFunc, report *waitReport) {
	flag, limit := "--timeout", o.timeout
	if left := o.timeToOpen(); o.waits && left < limit {
		flag, limit = "--wait", left
		ctx, cancel = context.WithTimeoutCause(bound, limit, o.unansweredWait())
	} else {
		ctx, cancel = context.WithCancel(bound)
	}
	return ctx, cancel, o.reportWaitUntil(ctx, o.path.Cell(), api.Path{}, flag, limit)
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

// endingSignals are the interrupts that ask CMD to end. SIGHUP is excluded, because many programs reload their
// configuration on it.
func endingSignals() []os.Signal {
	return slices.DeleteFunc(supervise.Interrupts(), func(s os.Signal) bool { return s == syscall.SIGHUP })
}

// environment returns CMD's environment: this process's, and what is held. With several locks, each lock's
// variables have one line a lock, sorted by name.
func (t *heldLock) environment(session api.SessionID) []string {
	own := []string{"CHUBBY_SESSION=" + session.String()}
	lines := func(of func(*client.Lock) string) string { return strings.Join(term.Each(t.locks, of), "\n") }
	if len(t.locks) > 0 {
		own = append(own, "CHUBBY_LOCK="+lines((*client.Lock).Path),
			"CHUBBY_SEQUENCER="+lines(func(l *client.Lock) string { return l.Sequencer().String() }),
			"CHUBBY_TOKEN="+lines(func(l *client.Lock) string { return strconv.FormatUint(l.Token(), 10) }))
	}
	if t.slot != nil {
		own = append(own, "CHUBBY_SLOT="+strconv.Itoa(*t.slot))
	}
	if t.member != "" {
		own = append(own, "CHUBBY_MEMBER="+t.member)
	}
	return tenure.Environment(own...)
}

// supervise runs CMD while the lock is held. CMD is asked to end if the lock is given up for a request. It
// returns tenure.NotBegun if CMD certainly did not begin.
func (o *workOptions) supervise(c tenure.Command, r request) error {
	c.Terms, c.Program, c.Args = o.terms, o.program, o.argv
	c.Guardian, c.Verbose, c.Notice, c.Warn = guardianVerb, o.verbose, o.notice, o.warn
	c.Asked, c.GivesUp = r.asked, func() bool { return o.noticeRequest(r) }
	err := c.Run(o.signals)
	var ended *tenure.Ended
	switch {
	case !errors.As(err, &ended):
		return err
	case ended.Lost:
		return &exitError{exitLost, err}
	case ended.Err != nil:
		return &exitError{exitFailed, err}
	}
	return exitWith(ended.Code)
}

func (o *workOptions) checkBudget(lease time.Duration) error {
	if err := o.terms.Budget(lease).Check(); err != nil {
		return usagef("%s: %v", o.verb, err)
	}
	return nil
}

func (o *workOptions) keepSequencer(held context.Context, sequencer string) (forget func(), err error) {
	forget, err = tenure.KeepSequencer(held, o.sequencerFile, sequencer, o.warn)
	return forget, usageOf(err)
}

// usageOf turns the error of an unusable sequencer file into a usage error.
func usageOf(err error) error {
	if errors.As(err, new(tenure.FileError)) {
		return usagef("%v", err)
	}
	return err
}

func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}
