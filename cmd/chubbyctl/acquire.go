package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/guard"
)

type acquireOptions struct {
	*globals
	shared         bool
	try            bool
	wait           time.Duration
	waits          bool // --wait was given
	lockDelay      time.Duration
	lease          time.Duration
	reason         string
	killAfter      time.Duration
	jeopardySignal string

	path     api.Path
	argv     []string // the command; empty to hold only
	program  string   // where the command was found
	jeopardy os.Signal
	signals  chan os.Signal // for the command
	out, err io.Writer
}

func newAcquireCommand(g *globals) *cobra.Command {
	o := &acquireOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "acquire PATH [flags] [-- CMD ARG...]",
		Short: "Take a lock, and run a command while holding it",
		Long: fmt.Sprintf(`acquire takes the lock on a file, which it creates if absent, and runs CMD while it
holds it. Without CMD it prints the sequencer and holds the lock until SIGINT or
SIGTERM.

CMD is run without a shell, in a process group of its own (the terminal's
foreground, if standard input is a terminal), with the standard streams passed
through. Every signal is passed on to it. It has in its environment:
  CHUBBY_LOCK       the path
  CHUBBY_SEQUENCER  the proof that the lock is held; send it with every request to
                    a server that the lock protects
  CHUBBY_TOKEN      the same as one number, greater with every grant
  CHUBBY_SESSION    the session that holds the lock

The lock is released when CMD and everything it started have ended; what CMD
leaves behind is stopped first. If the cell cannot be reached any more, CMD rides it
out for as long as nobody else can have the lock (-v prints for how long); it then
gets SIGTERM, and SIGKILL %v later or as --kill-after says, early enough that it is
gone before. A guardian process sees to that even if chubbyctl is stopped or killed.

Exit codes: CMD's own, and 128+n if signal n ended it; %d if the lock was lost while
CMD ran; %d if --try finds the lock held or delayed; %d if --wait ran out; %d and %d if
CMD could not be run or found (the lock is not taken then); %d if no master was found
within --timeout; %d if permission was denied.`, defaultKillAfter,
			exitLost, exitHeld, exitWaited, guard.ExitNotRunnable, guard.ExitNotFound, exitUnavailable, exitDenied),
		Example: `  chubbyctl acquire /ls/local/nightly --reason 'nightly backup' -- ./backup.sh --full
  chubbyctl acquire /ls/local/deploy --try -- ./deploy || echo "busy or failed: $?"
  chubbyctl acquire /ls/local/report --shared --wait 30s -- make report
  chubbyctl acquire /ls/local/maintenance      # until Ctrl-C`,
		Args:              o.arguments,
		ValidArgsFunction: g.completePath,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.waits = cmd.Flags().Changed("wait")
			o.out, o.err = cmd.OutOrStdout(), &lineWriter{w: cmd.ErrOrStderr()}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.shared, "shared", false, "share the lock with others who ask for it shared")
	flags.BoolVar(&o.try, "try", false, "do not wait if the lock is held or delayed")
	flags.DurationVar(&o.wait, "wait", 0, "how long to wait for the lock (default: for ever)")
	flags.DurationVar(&o.lockDelay, "lock-delay", api.DefaultLockDelay, "for how long nobody may have the lock if this session fails, 0 to 1m")
	flags.DurationVar(&o.lease, "lease", api.DefaultLease, "the lease to ask for, 1s to 1m")
	flags.StringVar(&o.reason, "reason", "", "what the lock is taken for, shown to others")
	flags.DurationVar(&o.killAfter, "kill-after", defaultKillAfter, "from SIGTERM to SIGKILL, when CMD must end")
	flags.StringVar(&o.jeopardySignal, "jeopardy-signal", "", "a signal for CMD when the cell does not answer in time, as in USR1")
	return cmd
}

// newGuardianCommand is how acquire starts the parent of CMD.
func newGuardianCommand() *cobra.Command {
	return &cobra.Command{
		Use:                guardianVerb,
		Hidden:             true,
		DisableFlagParsing: true,
		PersistentPreRunE:  func(*cobra.Command, []string) error { return nil },
		RunE:               func(_ *cobra.Command, args []string) error { return guard.RunGuardian(args) },
	}
}

const (
	guardianVerb     = "guardian"
	defaultKillAfter = 3 * time.Second
)

// arguments takes one path, and a command only behind "--": what looks like a
// flag of the command must never be taken for one of ours.
func (o *acquireOptions) arguments(cmd *cobra.Command, args []string) error {
	paths, argv := args, []string(nil)
	dash := cmd.ArgsLenAtDash()
	if dash >= 0 {
		paths, argv = args[:dash], args[dash:]
	}
	switch {
	case len(paths) == 0:
		return usagef("acquire: which lock? Give its path, as in 'chubbyctl acquire /ls/%s/nightly -- ./backup.sh'", api.LocalCell)
	case len(paths) > 1:
		return usagef("acquire: %q is not expected after the path; put -- before the command, as in 'chubbyctl acquire %s -- %s'", paths[1], paths[0], paths[1])
	case dash >= 0 && len(argv) == 0:
		return usagef("acquire: there is no command behind --")
	}
	p, err := parsePath(paths[0])
	o.path, o.argv = p, argv
	return err
}

func (o *acquireOptions) validate() error {
	switch {
	case o.path.IsRoot():
		return usagef("acquire: %v is the root directory of its cell; name a file below it, as in %v/nightly", o.path, o.path)
	case o.try && o.waits:
		return usagef("acquire: --try does not wait, --wait does; choose one")
	case o.wait < 0:
		return usagef("--wait %v: want a duration, as in 30s", o.wait)
	case o.lockDelay < 0 || o.lockDelay > api.MaxLockDelay:
		return usagef("--lock-delay %v: want 0 to %v", o.lockDelay, api.MaxLockDelay)
	case o.lease < api.MinLease || o.lease > api.MaxLease:
		return usagef("--lease %v: want %v to %v", o.lease, api.MinLease, api.MaxLease)
	case o.killAfter < 0:
		return usagef("--kill-after %v: want a duration, as in 3s", o.killAfter)
	case len(o.reason) > api.MaxReason:
		return usagef("--reason has %d bytes; at most %d are shown to others", len(o.reason), api.MaxReason)
	case o.jeopardySignal != "" && len(o.argv) == 0:
		return usagef("--jeopardy-signal is for a command, and there is none")
	}
	if len(o.argv) == 0 {
		return nil
	}
	var err error
	if o.jeopardySignal != "" {
		if o.jeopardy, err = guard.ParseSignal(o.jeopardySignal); err != nil {
			return usagef("--jeopardy-signal: %v", err)
		}
	}
	if o.program, err = guard.Find(o.argv[0]); err != nil {
		return err
	}
	return o.budget(o.lease).check()
}

// budget is what CMD's safety is made of (Chubby §2.8 and the rule that a lock
// is nobody else's before lease and lock-delay are over).
type budget struct {
	lease, lockDelay, killAfter, margin time.Duration
}

func (o *acquireOptions) budget(lease time.Duration) budget {
	return budget{lease, o.lockDelay, o.killAfter, client.Margin(lease, o.lockDelay)}
}

// exclusive is how long nobody else can have the lock at the worst moment: a
// lease is extended when 7/12 of it are over, and clocks may differ in rate.
func (b budget) exclusive() time.Duration {
	return time.Duration(float64(b.lease*5/12+b.lockDelay) * (1 - api.ClockRateBound))
}

// outage is the longest silence of the cell that CMD does not notice.
func (b budget) outage() time.Duration { return b.exclusive() - b.killAfter - b.margin }

// check refuses settings under which CMD could outlive its exclusivity, or
// would be stopped before any outage.
func (b budget) check() error {
	if b.outage() > 0 {
		return nil
	}
	return usagef("acquire: with a lease of %v and a lock-delay of %v, nobody else can have the lock for %v at the worst moment; "+
		"CMD needs %v to be stopped (--kill-after) and a margin of %v: lower --kill-after, or raise --lease or --lock-delay",
		b.lease, b.lockDelay, b.exclusive().Round(time.Millisecond), b.killAfter, b.margin.Round(time.Millisecond))
}

func (b budget) String() string {
	return fmt.Sprintf("CMD rides out an outage of the cell of %.1fs: remaining lease %.1fs + lock-delay %v, less clock bound %.1fs, kill-after %v and margin %v",
		b.outage().Seconds(), (b.lease * 5 / 12).Seconds(), b.lockDelay,
		(b.lease*5/12 + b.lockDelay - b.exclusive()).Seconds(), b.killAfter, b.margin.Round(time.Millisecond))
}

// refresh is how often to look how long the lock is still ours.
func (b budget) refresh() time.Duration { return min(time.Second, b.lease/12) }

// run takes the lock and does what it was taken for.
func (o *acquireOptions) run(ctx context.Context) error {
	if len(o.argv) > 0 {
		o.signals = guard.Listen()
	}
	changed := make(chan struct{}, 1)
	cfg := o.config(o.path.Cell())
	cfg.Lease = o.lease
	cfg.OnState = func(client.StateChange) {
		select {
		case changed <- struct{}{}:
		default: // whoever looks will see this one too
		}
	}
	bound, cancel := o.bound(ctx)
	defer cancel()
	c, err := client.New(bound, cfg)
	if err != nil {
		return causeOf(ctx, err)
	}
	defer o.leave(ctx, c)
	if len(o.argv) > 0 {
		if err := o.budget(c.Lease()).check(); err != nil {
			return err
		}
	}
	h, err := c.Open(bound, o.path.String(), client.OpenOptions{Write: true, Create: client.File, Kind: api.File, LockDelay: o.lockDelay})
	if err != nil {
		return causeOf(ctx, withAdvice(err, o.path, client.File))
	}
	lock, err := o.acquire(ctx, h)
	if err != nil {
		return err
	}
	defer o.release(ctx, lock)
	if len(o.argv) == 0 {
		return o.hold(ctx, c, lock)
	}
	if cause := causeOf(ctx, context.Cause(ctx)); cause != nil {
		return cause // an interrupt that came too late for the waiting
	}
	env := o.environment(lock.Sequencer().String(), lock.Token(), c.Session())
	return o.supervise(lock, c, env, changed)
}

// acquire gets the lock, saying now and then why that takes so long.
func (o *acquireOptions) acquire(ctx context.Context, h *client.Handle) (*client.Lock, error) {
	mode := api.Exclusive
	if o.shared {
		mode = api.Shared
	}
	if o.try {
		bound, cancel := o.bound(ctx)
		defer cancel()
		lock, err := h.TryAcquire(bound, mode, client.Reason(o.reason))
		if code := api.CodeOf(err); code == api.LockHeld || code == api.LockDelayed {
			return nil, &exitError{exitHeld, o.explainHeld(err)}
		}
		return lock, causeOf(ctx, err)
	}
	waiting := ctx
	ranOut := api.Errorf(api.DeadlineExceeded, "--wait %v ran out", o.wait)
	if o.waits {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, o.wait, ranOut)
		defer cancel()
	}
	p := newProgress(o)
	defer p.stop()
	lock, err := h.Acquire(waiting, mode, client.Reason(o.reason), client.OnQueued(p.queued))
	if err != nil && errors.Is(context.Cause(waiting), ranOut) {
		return nil, &exitError{exitWaited, &api.Error{Code: api.DeadlineExceeded, Op: "acquire", Path: o.path.String(),
			Message: fmt.Sprintf("--wait %v ran out; %s", o.wait, p.last())}}
	}
	return lock, causeOf(ctx, err)
}

// explainHeld says who holds the lock, since when and why, in one line.
func (o *acquireOptions) explainHeld(err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	told := *e
	told.Op, told.Path, told.Err = "acquire", o.path.String(), nil
	switch {
	case e.Code == api.LockDelayed:
		told.Message = fmt.Sprintf("a holder failed, and nobody may have the lock for another %s; try again then, or wait without --try", roughly(e.Remaining))
	case len(e.Holders) > 0:
		told.Message = heldBy(e.Holders) + "; try again later, or wait without --try"
	}
	return &told
}

// acquiredFields is the first line of acquire -o json without a command.
type acquiredFields struct {
	Path      string    `json:"path"`
	Mode      string    `json:"mode"`
	Sequencer string    `json:"sequencer"`
	Token     uint64    `json:"token"`
	Session   string    `json:"session"`
	Epoch     api.Epoch `json:"epoch"`
}

// hold prints the proof and keeps the lock until an interrupt or its loss.
func (o *acquireOptions) hold(ctx context.Context, c *client.Client, lock *client.Lock) error {
	if o.json() {
		if err := printJSON(o.out, acquiredFields{
			o.path.String(), lock.Mode().String(), lock.Sequencer().String(), lock.Token(), c.Session().String(), c.Epoch(),
		}); err != nil {
			return err
		}
	} else {
		if _, err := fmt.Fprintln(o.out, lock.Sequencer()); err != nil {
			return err
		}
		remark(o.err, "holding %v until Ctrl-C (SIGINT) or SIGTERM; send the line above with every request that the lock protects", o.path)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-lock.Context().Done():
		return &exitError{exitLost, fmt.Errorf("%v was lost: %w", o.path, context.Cause(lock.Context()))}
	}
}

// release gives the lock up in time that does not depend on what ended the work.
func (o *acquireOptions) release(ctx context.Context, lock *client.Lock) {
	if lock.Err() != nil {
		return // there is nothing to give up
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.timeout)
	defer cancel()
	if err := lock.Release(ctx); err != nil && lock.Err() == nil {
		remark(o.err, "%v was not released (%v); it becomes free when the session has ended", o.path, err)
	}
}

// notice tells the user something while things run.
func (o *acquireOptions) notice(text string) { o.globals.notice(o.err, text) }
