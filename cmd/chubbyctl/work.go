package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
	"github.com/chubbylock/chubby/internal/tenure"
)

// workOptions are the common options of acquire, elect, semaphore and members join: for the holding, and for
// the command under it.
type workOptions struct {
	*globals
	waitLimit
	workCommand
	verb           string
	noun           string       // of PATH; empty: lock
	terms          tenure.Terms // --lock-delay and --kill-after, and what they are used with
	try            bool         // of acquire and semaphore: do not wait
	lease          time.Duration
	reason         string
	jeopardySignal string
	safeSignal     string
	sequencerFile  string
	atLeast        time.Duration
	retry          bool
	busy           busyCode

	paths    []api.Path
	path     api.Path // the first
	out, err io.Writer
	rearm    func() context.Context // makes interrupts end a context again; nil if they are not caught
}

// waitLimit is --wait, if given, and the time since the wait began, with the first request for a session; nil before.
type waitLimit struct {
	wait  time.Duration
	waits bool
	begun func() time.Duration
}

// workCommand is the command under a lock, and where it is; empty: only hold the lock. It gets signals.
type workCommand struct {
	argv    []string
	program string
	signals chan os.Signal
}

// busyCode is --busy-exit-code, if given: the exit code of a vain try or wait.
type busyCode struct {
	code  int
	given bool
}

// recipeDelay returns --lock-delay for a recipe's options, where zero is the default.
func (o *workOptions) recipeDelay() time.Duration {
	if o.terms.LockDelay == 0 {
		return recipe.NoLockDelay
	}
	return o.terms.LockDelay
}

const defaultKillAfter = 3 * time.Second

func (o *workOptions) addFlags(flags *pflag.FlagSet) {
	o.addCommandFlags(flags)
	flags.DurationVar(&o.wait, "wait", 0, "how long to wait for the lock; 0 is one try (default: without limit)")
	flags.DurationVar(&o.terms.LockDelay, "lock-delay", api.DefaultLockDelay, "for how long nobody may have the lock if this session fails, 0 to 1m")
	flags.StringVar(&o.reason, "reason", "", "what the lock is taken for, shown to others")
	flags.DurationVar(&o.atLeast, "at-least", 0, "keep the lock at least this long, even if CMD ends earlier: for cron jobs scheduled on several hosts")
	flags.IntVar(&o.busy.code, "busy-exit-code", 0, fmt.Sprintf("the exit code, 0 to 255, if --try or --wait does not get the lock (default: %d and %d)", exitHeld, exitWaited))
	flags.StringVar(&o.sequencerFile, "sequencer-file", "", "keep the sequencer in this file, which no other chubbyctl uses, while the lock is held, for other programs")
	needsCommand(flags, "at-least") // without CMD the lock is held until Ctrl-C
	zeroIsOff(flags, "at-least", "reason", "sequencer-file")
}

// addCommandFlags adds the flags of the session and CMD, without a lock's.
func (o *workOptions) addCommandFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&o.lease, "lease", api.DefaultLease, "the lease to ask for, 1s to 1m")
	flags.DurationVar(&o.terms.KillAfter, "kill-after", defaultKillAfter, "from SIGTERM to SIGKILL, when CMD must end")
	flags.StringVar(&o.jeopardySignal, "jeopardy-signal", "", "a signal for CMD when the cell does not answer in time, as in USR1")
	flags.StringVar(&o.safeSignal, "safe-signal", "", "a signal for CMD when the cell answers again after that, as in USR2")
	flags.BoolVar(&o.retry, "retry", false, "when the session ends, wait again under a new one, and run CMD again if it was stopped because what it runs under was lost")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "write nothing unless somebody has to act: not that the lock is waited for, or not had, or kept, nor what passes by itself")
	keepApart(flags, "quiet", "the one says less, and the other more", "verbose")
	needsCommand(flags, "jeopardy-signal", "safe-signal", "retry") // not kill-after: scripts give it with and without CMD
	zeroIsOff(flags, "jeopardy-signal", "safe-signal")
}

// flagsOfHolding are the flags of addFlags: meaningless beside a flag with which a verb holds nothing.
func flagsOfHolding() (names []string) {
	var all pflag.FlagSet
	(&workOptions{globals: new(globals)}).addFlags(&all)
	all.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

func (o *workOptions) addTry(flags *pflag.FlagSet, does string) {
	flags.BoolVar(&o.try, "try", false, does)
	chooseOne(flags, "the one does not wait, and the other does", "try", "wait")
}

// takeStreams takes from cobra the output streams, whether --wait was given, and how interrupts are caught.
func (o *workOptions) takeStreams(cmd *cobra.Command) {
	o.waits, o.busy.given = cmd.Flags().Changed("wait"), cmd.Flags().Changed("busy-exit-code")
	o.out, o.err = cmd.OutOrStdout(), o.stderr
	if o.stop == nil {
		return // interrupts are not caught
	}
	o.rearm = func() context.Context {
		catchInterrupts(o.globals, cmd)
		return cmd.Context()
	}
}

// takeArguments takes one path, and a command only after "--", so that a command's flag is never read as
// chubbyctl's. Several paths need a command: one without its "--" would be read as names of locks.
func (o *workOptions) takeArguments(cmd *cobra.Command, args []string) error {
	paths, argv, dash := args, []string(nil), cmd.ArgsLenAtDash()
	if dash >= 0 {
		paths, argv = args[:dash], args[dash:]
	}
	o.verb = strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	switch {
	case len(paths) == 0:
		return usagef("%s: which %s? Give its path, as in 'chubbyctl %s /ls/%s/nightly -- ./backup.sh'", o.verb, cmp.Or(o.noun, "lock"), o.verb, api.LocalCell)
	case len(paths) > 1 && (!strings.Contains(cmd.Use, "PATH...") || len(argv) == 0):
		return usagef("%s: %q is not expected after the path; put -- before the command, as in 'chubbyctl %s %s -- %s'", o.verb, paths[1], o.verb, paths[0], paths[1])
	case dash >= 0 && len(argv) == 0:
		return usagef("%s: there is no command behind --", o.verb)
	}
	var err error
	if o.paths, err = o.parsePaths(o.verb, paths); err != nil {
		return err
	}
	o.path, o.argv = o.paths[0], argv
	return nil
}

func (o *workOptions) validate() error {
	for _, p := range o.paths {
		if p.IsRoot() {
			return usagef("%s: %v is the root directory of its cell; name a file below it, as in %v/nightly", o.verb, p, p)
		}
	}
	switch {
	case len(o.paths) > 1 && o.sequencerFile != "":
		return usagef("--sequencer-file is for one lock; CMD has the sequencers of several in CHUBBY_SEQUENCER")
	case o.wait < 0:
		return usagef("--wait %v: want a duration, as in 30s", o.wait)
	case o.busy.code < 0 || o.busy.code > 255:
		return usagef("--busy-exit-code %d: want 0 to 255", o.busy.code)
	case o.busy.given && !o.try && !o.waits:
		return usagef("%s: --busy-exit-code is for --try and --wait: without them the lock is waited for until it is had", o.verb)
	case o.terms.LockDelay < 0 || o.terms.LockDelay > api.MaxLockDelay:
		return usagef("--lock-delay %v: want 0 to %v", o.terms.LockDelay, api.MaxLockDelay)
	case o.lease < api.MinLease || o.lease > api.MaxLease:
		return usagef("--lease %v: want %v to %v", o.lease, api.MinLease, api.MaxLease)
	case o.atLeast < 0:
		return usagef("--at-least %v: want a duration, as in 1m", o.atLeast)
	case o.terms.KillAfter < 0:
		return usagef("--kill-after %v: want a duration, as in 3s", o.terms.KillAfter)
	case len(o.reason) > api.MaxReason:
		return usagef("--reason has %d bytes; at most %d are shown to others", len(o.reason), api.MaxReason)
	}
	if err := usageOf(tenure.CheckSequencerFile(o.sequencerFile)); err != nil {
		return err
	}
	for _, one := range []struct {
		flag, name string
		signal     *os.Signal
	}{{"--jeopardy-signal", o.jeopardySignal, &o.terms.Jeopardy}, {"--safe-signal", o.safeSignal, &o.terms.Safe}} {
		if one.name != "" {
			var err error
			if *one.signal, err = supervise.ParseSignal(one.name); err != nil {
				return usagef("%s: %v", one.flag, err)
			}
		}
	}
	if len(o.argv) == 0 {
		return nil
	}
	var err error
	if o.program, err = supervise.Find(o.argv[0]); err != nil {
		return err
	}
	o.terms.Scan = supervise.Scan()
	return o.checkBudget(o.lease)
}

// runOnce takes the lock once, and runs the command or holds the lock. asked ends when a signal requests the
// end.
func (o *workOptions) runOnce(ctx, asked context.Context, take campaign) error {
	news := tenure.NewNews()
	cfg := o.config(o.path.Cell())
	cfg.Lease, cfg.OnState = o.lease, news.Hear
	bound, cancel := o.withTimeout(ctx)
	defer cancel()
	if o.begun == nil {
		o.begun = stopwatch()
	}
	opening, cancel, report := o.opening(bound)
	defer cancel()
	defer report.stop()
	c, err := client.New(opening, cfg)
	if err != nil {
		return report.explain(interruptOr(ctx, err))
	}
	report.stop()
	farewell, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() { stop() }()
	defer func() {
		bound := closeBound
		if farewell.Err() != nil {
			bound = farewellBound // another interrupt came
		}
		o.sayFarewell(ctx, c, bound, c.Close)
	}()
	if len(o.argv) > 0 {
		if err := o.checkBudget(c.Lease()); err != nil {
			return err
		}
	}
	t, err := take(ctx, bound, c)
	if err != nil {
		return interruptOr(ctx, err)
	}
	if t.request.stop != nil {
		defer t.request.stop()
	}
	defer func() { o.giveUpLock(farewell, c, t) }()
	if o.verbose {
		held := term.Each(t.locks, func(lock *client.Lock) string { return fmt.Sprintf("%s (token %d)", lock.Path(), lock.Token()) })
		o.notice(fmt.Sprintf("session %v holds %s", c.Session(), cmp.Or(strings.Join(held, ", "), t.member)))
	}
	held := stopwatch()
	withdraw, err := o.keepSequencer(t.lock.Context(), t.sequencer())
	if err != nil {
		return err
	}
	defer withdraw()
	if len(o.argv) == 0 {
		return o.holdLock(ctx, c, t)
	}
	if cause := interruptOr(ctx, context.Cause(ctx)); cause != nil {
		return cause // an interrupt came when the lock was just granted
	}
	err = o.supervise(tenure.Command{
		Name: t.String(), Lock: t.lock, Session: c, Env: t.environment(c.Session()), News: news,
	}, t.request)
	// CMD has ended, so signals are for chubbyctl again. One of them shortens the rest.
	farewell, stop = signal.NotifyContext(farewell, supervise.Interrupts()...)
	if countsAtLeast(err) && asked.Err() == nil {
		o.keepAtLeast(farewell, t.lock, o.atLeast-held())
	}
	return err
}

// countsAtLeast reports whether --at-least counts after CMD's error: not if CMD did not run, or if the end of
// its terminal (SIGHUP) ended it.
func countsAtLeast(err error) bool {
	notRun := (*supervise.NotRunError)(nil)
	return !errors.As(err, &notRun) && exitCode(err) != exitBySignal+int(syscall.SIGHUP)
}

// keepAtLeast keeps a lock for a while after CMD has ended, so that hosts with slow clocks find it held. The
// loss of the lock or a signal ends that.
func (o *workOptions) keepAtLeast(ctx context.Context, lock tenure.Lock, left time.Duration) {
	if left <= 0 || lock.Err() != nil {
		return
	}
	if left > term.Patience {
		o.notice(fmt.Sprintf("CMD has ended; the lock is kept for another %s (--at-least)", term.Roughly(left)))
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-lock.Context().Done():
		o.warn(fmt.Sprintf("the lock was lost while it was kept for --at-least: %v", lock.Err()))
	}
}

func (o *workOptions) waitRanOut(path api.Path, last string) error {
	return &api.Error{
		Code: api.DeadlineExceeded, Op: o.verb, Path: path.String(), Message: fmt.Sprintf("--wait %v ran out; %s", o.wait, last),
	}
}

// unanswered ends a wait without news of the lock: it may be free.
type unanswered struct{ error }

func (u unanswered) Unwrap() error { return u.error }

// withBusyCode gives the error of a busy lock the exit code of --busy-exit-code, and with --quiet no text.
func (o *workOptions) withBusyCode(err error) error {
	var own *exitError
	if !errors.As(err, &own) || own.err == nil || own.code != exitHeld && own.code != exitWaited || errors.As(err, new(unanswered)) {
		return err
	}
	busy := exitError{own.code, err}
	if o.busy.given {
		busy.code = o.busy.code
	}
	if o.quiet {
		busy.err = nil
	}
	return &busy
}

func (o *workOptions) notice(text string) { o.globals.notice(o.err, text) }

// warn prints what needs action, also with --quiet.
func (o *workOptions) warn(text string) { o.output.Notice(o.err, text) }

// minCampaign is the minimum wait of elect, however short --wait is: an election without rivals takes several
// operations.
const minCampaign = time.Second
