package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/contrib/recipes"
	"github.com/chubbylock/chubby/internal/supervise"
	"github.com/chubbylock/chubby/internal/tenure"
)

// takeOptions are those of queue take.
type takeOptions struct {
	*globals
	attempts                   int
	retryDelay                 time.Duration
	wait                       time.Duration
	waits                      bool // --wait was given
	lockDelay, lease           time.Duration
	killAfter                  time.Duration
	jeopardySignal, safeSignal string
	reason, sequencerFile      string
	retry                      bool

	path    api.Path
	argv    []string // the command
	program string   // where it was found
	terms   tenure.Terms
	begun   func() time.Duration // how long ago the wait began
	signals chan os.Signal
}

const (
	minWait   = time.Second     // how long take waits at least, however short --wait is: to take an item needs several calls
	patience  = 2 * time.Second // how long a wait may be silent
	longPause = 30 * time.Second
)

func newTakeCommand(g *globals) *cobra.Command {
	o := &takeOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "take PATH [flags] -- CMD ARG...",
		Short: "Run a command on the next item of a work queue",
		Long: fmt.Sprintf(`take waits for the next item of the queue PATH, a directory, which it creates if
absent (the directory above has to exist), and runs CMD with the data of the item
as standard input, while it holds the item. If CMD ends with 0, the item is done,
and out of the queue. Otherwise the try has failed: the item is back in its place,
and nobody takes it for --retry-delay.

CMD runs as under acquire, with the same environment and the same safety (see
'chubbyctl acquire --help'): if the item could be lost, CMD is stopped before
another can have it. CHUBBY_LOCK is the path of the item's file; CHUBBY_ITEM is its
id, and CHUBBY_ATTEMPT which try this is, from 1 on; 0 for an item of v0.1.0.

A try counts from before CMD begins, also if this machine crashes, and not if CMD
could not be begun. All workers of a queue should say the same --attempts; where
there are %d dead letters, take with --attempts takes nothing, and fails.

Exit codes: CMD's own, and those of acquire; %d also if --wait ran out.`, recipes.MaxDeadLetters, exitWaited),
		Example: `  chubbyctl queue take /ls/local/films --attempts 3 -- ./convert
  while chubbyctl queue take /ls/local/films --wait 10s -- ./convert; do :; done`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.waits = cmd.Flags().Changed("wait")
			if err := o.validate(args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			return o.work(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.attempts, "attempts", 0, "how often an item is begun at most, 1 to 1000, before it is a dead letter; 0: without limit")
	flags.DurationVar(&o.retryDelay, "retry-delay", 0, "for how long nobody takes the item after CMD has failed, 0 to 720h")
	flags.DurationVar(&o.wait, "wait", 0, "how long to wait for an item, a second at least (default: without limit)")
	flags.DurationVar(&o.lockDelay, "lock-delay", api.DefaultLockDelay, "for how long nobody may have the item if this session fails, 0 to 1m")
	flags.DurationVar(&o.lease, "lease", api.DefaultLease, "the lease to ask for, 1s to 1m")
	flags.DurationVar(&o.killAfter, "kill-after", 3*time.Second, "from SIGTERM to SIGKILL, when CMD must end")
	flags.StringVar(&o.jeopardySignal, "jeopardy-signal", "", "a signal for CMD when the cell does not answer in time, as in USR1")
	flags.StringVar(&o.safeSignal, "safe-signal", "", "a signal for CMD when the cell answers again after that, as in USR2")
	flags.StringVar(&o.reason, "reason", "", "what the item is taken for, shown to others")
	flags.StringVar(&o.sequencerFile, "sequencer-file", "", "keep the sequencer in this file while the item is held, for other programs")
	flags.BoolVar(&o.retry, "retry", false, "when the session ends, wait again under a new one, and take another item if one was lost")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "write nothing unless somebody has to act")
	return cmd
}

// validate reads the command line.
func (o *takeOptions) validate(args []string, dash int) (err error) {
	if dash < 0 {
		dash = len(args)
	}
	switch {
	case dash != 1:
		return usagef("queue take: want one path, and the command behind --, as in 'chubbyctl queue take /ls/local/films -- ./convert'")
	case len(args) == 1:
		return usagef("queue take: the command is missing; put it behind --, as in 'chubbyctl queue take %s -- ./convert'", args[0])
	case o.attempts < 0 || o.attempts > recipes.MaxAttempts:
		return usagef("--attempts %d: want 1 to %d, or 0 for no limit", o.attempts, recipes.MaxAttempts)
	case o.retryDelay < 0 || o.retryDelay > recipes.MaxDelay:
		return usagef("--retry-delay %v: want 0 to %v", o.retryDelay, recipes.MaxDelay)
	case o.lockDelay < 0 || o.lockDelay > api.MaxLockDelay, o.lease < api.MinLease || o.lease > api.MaxLease, o.wait < 0, o.killAfter < 0:
		return usagef("--wait %v, --kill-after %v, --lock-delay %v, --lease %v: want 0 or more, a lock-delay of %v at most, and a lease of %v to %v",
			o.wait, o.killAfter, o.lockDelay, o.lease, api.MaxLockDelay, api.MinLease, api.MaxLease)
	case len(o.reason) > api.MaxReason:
		return usagef("--reason has %d bytes; at most %d are shown to others", len(o.reason), api.MaxReason)
	}
	if o.path, err = o.parsePath("queue take", args[0]); err != nil {
		return err
	}
	if err := tenure.CheckSequencerFile(o.sequencerFile); err != nil {
		return usagef("%w", err)
	}
	if o.argv = args[1:]; len(o.argv) > 0 {
		if o.program, err = supervise.Find(o.argv[0]); err != nil {
			return err
		}
	}
	o.terms = tenure.Terms{
		LockDelay: o.lockDelay, KillAfter: o.killAfter, Scan: supervise.Scan(), Guardian: guardianVerb, Verbose: o.verbose, Notice: o.notice, Warn: o.warn,
	}
	for name, signal := range map[string]*os.Signal{o.jeopardySignal: &o.terms.Jeopardy, o.safeSignal: &o.terms.Safe} {
		if name == "" {
			continue
		}
		if *signal, err = supervise.ParseSignal(name); err != nil {
			return usagef("%w", err)
		}
	}
	return o.checkBudget(o.lease)
}

func (o *takeOptions) checkBudget(lease time.Duration) error {
	if err := o.terms.Budget(lease).Check(); err != nil {
		return usagef("queue take: %w", err)
	}
	return nil
}

// work takes an item and runs the command; with --retry again, under a new session, when an item was lost, or the session in which one
// was waited for, until the command ends by itself or a signal asks for the end. SIGHUP does not: many programs read their
// configuration again for it.
func (o *takeOptions) work(ctx context.Context) error {
	o.signals = supervise.Listen()
	asked, forget := signal.NotifyContext(ctx, slices.DeleteFunc(supervise.Interrupts(), func(s os.Signal) bool { return s == syscall.SIGHUP })...)
	defer forget()
	o.begun = stopwatch()
	pause := time.Second
	for lost := false; ; {
		took := stopwatch()
		err := o.once(ctx)
		var own *exitError
		ran := errors.As(err, &own) && own.code == exitLost && own.err != nil // else it is CMD's own exit code
		lost = lost || ran || isLost(err)
		passes := ran || own == nil && (isLost(err) || exitCode(err) == exitUnavailable || exitCode(err) == exitUncertain)
		if !o.retry || asked.Err() != nil || !lost || !passes {
			return err
		}
		what := "an item is waited for again"
		if ran {
			what = "another item is taken"
			o.begun = stopwatch() // --wait is for each wait, however many sessions that takes
		}
		if took() >= longPause {
			pause = time.Second
		}
		next := pause/2 + rand.N(pause/2) // not all at once, when a cell has been away
		o.warn(fmt.Sprintf("%v; %s under a new session in %v (--retry)", err, what, next.Round(100*time.Millisecond)))
		if err := sleep(ctx, next); err != nil {
			return err
		}
		pause = min(2*pause, longPause)
	}
}

// sleep waits, or returns the signal that ends the wait.
func sleep(ctx context.Context, d time.Duration) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// once takes an item, runs the command on it, and says what became of it.
func (o *takeOptions) once(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	news := tenure.NewNews()
	cfg := o.config(o.path.Cell())
	cfg.Lease, cfg.OnState = o.lease, news.Hear
	limit, cause := o.timeout, error(outOfTime{o.timeout})
	if left := max(o.wait-o.begun(), 2*time.Second); o.waits && left < limit {
		limit, cause = left, o.ranOut("the cell has not answered")
	}
	opening, cancel := context.WithTimeoutCause(ctx, limit, cause)
	defer cancel()
	c, err := client.New(opening, cfg)
	if err != nil {
		return o.explain(opening, err)
	}
	defer closeSession(c)
	if err := o.checkBudget(c.Lease()); err != nil {
		return err
	}
	item, err := o.take(ctx, c)
	if err != nil {
		return err
	}
	defer o.giveBack(c, item)
	forget, err := tenure.KeepSequencer(item.Context(), o.sequencerFile, item.Sequencer().String(), o.warn)
	if err != nil {
		return usagef("%w", err)
	}
	defer forget()
	if err := context.Cause(ctx); err != nil {
		return err // an interrupt came when the item was just taken
	}
	stop() // from now on signals are for the command
	err = tenure.Command{
		Terms: o.terms, Name: item.Path(), Lock: item.Lock(), Session: c, Program: o.program, Args: o.argv, Data: &item.Data,
		News: news, Env: tenure.Environment("CHUBBY_SESSION="+c.Session().String(), "CHUBBY_LOCK="+item.Path(),
			"CHUBBY_SEQUENCER="+item.Sequencer().String(), "CHUBBY_TOKEN="+strconv.FormatUint(item.Lock().Token(), 10),
			"CHUBBY_ITEM="+item.ID(), "CHUBBY_ATTEMPT="+strconv.Itoa(item.Attempt())),
	}.Run(o.signals)
	return o.finish(item, err)
}

// take waits for an item. If that takes long, it says so.
func (o *takeOptions) take(ctx context.Context, c *client.Client) (*recipes.Item, error) {
	waiting, cancel := context.WithCancel(ctx)
	last := fmt.Sprintf("no item is free, or the cell does not answer ('chubbyctl queue list %v' shows them)", o.path)
	if o.waits {
		waiting, cancel = context.WithTimeoutCause(ctx, max(o.wait-o.begun(), minWait), o.ranOut(last))
	}
	defer cancel()
	silent := time.AfterFunc(patience, func() { o.notice(fmt.Sprintf("waiting for %v: %s", o.path, last)) })
	defer silent.Stop()
	item, err := recipes.NewQueue(c, o.path.String(), recipes.QueueOptions{
		LockDelay: cmp.Or(o.lockDelay, recipe.NoLockDelay), Reason: o.reason, Attempts: o.attempts,
		OnUnusable: func(id string, err error) { o.warn(fmt.Sprintf("item %s is passed over: %v", id, err)) },
	}).Take(waiting)
	return item, o.explain(waiting, withAdvice(err, o.path))
}

// ranOut is why a wait ends that --wait ends.
func (o *takeOptions) ranOut(last string) error {
	return &exitError{exitWaited, &api.Error{
		Code: api.DeadlineExceeded, Op: "queue take", Path: o.path.String(), Message: fmt.Sprintf("--wait %v ran out; %s", o.wait, last),
	}}
}

// explain returns the error of a wait: that it ran out, or was interrupted, if that has ended it.
func (o *takeOptions) explain(ctx context.Context, err error) error {
	if ranOut := (*exitError)(nil); err != nil && errors.As(context.Cause(ctx), &ranOut) {
		return ranOut
	}
	return orInterrupt(ctx, err)
}

// finish says what became of the item: done if the command ended with 0, and failed otherwise. It returns how chubbyctl ends. Of an item
// whose command was not begun it says nothing: a try that has not begun does not count.
func (o *takeOptions) finish(item *recipes.Item, ran error) error {
	var ended *tenure.Ended
	begun := !errors.As(ran, new(tenure.NotBegun))
	if errors.As(ran, &ended) {
		code := map[bool]int{true: exitLost, false: cmp.Or(ended.Code, exitFailed)}[ended.Lost]
		if ended.Err != nil && !ended.Lost {
			code = exitFailed
		}
		ran = &exitError{code, ended.Err}
	}
	if !begun || ran != nil && item.Err() != nil { // which says that it was lost
		return ran
	}
	ctx, stop := interruptible(context.Background()) // the command has ended, so signals are for this program again
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if ran == nil {
		err := item.Done(ctx)
		switch {
		case isLost(err):
			return &exitError{exitLost, fmt.Errorf("CMD ended with 0, and item %s was lost before the cell said that it is done: %w", item.ID(), err)}
		case err != nil && exitCode(err) == exitUnavailable:
			err = &exitError{exitUncertain, err}
		}
		if err != nil {
			return fmt.Errorf("CMD ended with 0, and item %s may not be done: %w", item.ID(), err)
		}
		return nil
	}
	reason := ran.Error()
	if ended != nil && ended.Err == nil {
		reason = fmt.Sprintf("exit code %d", ended.Code)
		if ended.Code > exitBySignal {
			reason += fmt.Sprintf(" (signal %d, or its own)", ended.Code-exitBySignal)
		}
	}
	if err := item.Fail(ctx, reason[:min(len(reason), api.MaxReason)], o.retryDelay); err != nil {
		o.notice(fmt.Sprintf("CMD has failed, and item %s may not be given back yet (%v); it is free when lease and lock-delay have ended, at the latest", item.ID(), err))
	} else if item.IsLastAttempt() {
		o.warn(fmt.Sprintf("item %s has failed for the last time, and is a dead letter ('chubbyctl queue list %v --dead')", item.ID(), o.path))
	}
	return ran
}

// giveBack gives back an item of which nothing was said: its command was not begun. It tries until the lease has run out if the cell
// does not answer. Of one that is done or failed it does nothing.
func (o *takeOptions) giveBack(c *client.Client, item *recipes.Item) {
	ctx, cancel := context.WithTimeout(context.Background(), min(o.timeout, max(c.Left(), 200*time.Millisecond)))
	defer cancel()
	if err := item.Return(ctx); item.Err() == nil && err != nil && !isLost(err) {
		o.notice(fmt.Sprintf("item %s may not be given back yet (%v); it is free when lease and lock-delay have ended, at the latest", item.ID(), err))
	}
}

// isLost reports whether an error says that an item was lost.
func isLost(err error) bool {
	return errors.Is(err, api.LockLost) || errors.Is(err, api.SessionExpired)
}
