package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
)

type acquireOptions struct {
	workOptions
	shared  bool
	owner   string
	giveWay bool

	ask, askGiven bool // ask a holder with --give-way to release; the flag was given
}

func acquireVerb(g *globals, cmd *cobra.Command) {
	o := &acquireOptions{workOptions: workOptions{globals: g}}
	cmd.Args = o.takeArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.takeStreams(cmd)
		o.askGiven = cmd.Flags().Changed("ask")
		if cmd.Flags().Changed("detect-deadlock") && o.owner == "" {
			return usagef("acquire: --detect-deadlock: name the owner of the locks, the same in all commands of one job")
		}
		if err := o.validate(); err != nil {
			return err
		}
		switch several := len(o.paths) > 1; {
		case several && o.giveWay:
			return usagef("--give-way is for one lock, and %d are named", len(o.paths))
		case several:
			return o.runWork(cmd.Context(), o.acquireAll)
		}
		return o.runWork(cmd.Context(), o.acquire)
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.shared, "shared", false, "share the lock with others who ask for it shared")
	flags.BoolVar(&o.giveWay, "give-way", false, "let the lock go when another asks for it: CMD gets SIGTERM then")
	flags.BoolVar(&o.ask, "ask", false, "ask who has the lock with --give-way to let it go: the default without --try and --give-way")
	flags.StringVar(&o.owner, "detect-deadlock", "", "take the lock for `OWNER`, and fail if those waited for wait for locks of the same owner")
	o.addFlags(flags)
	o.addTry(flags, "do not wait if the lock is held or delayed")
	chooseOne(flags, "the one lets the lock go when another asks for it, and the other keeps it", "give-way", "at-least")
}

// isQuiet reports whether no holder is asked to release.
func (o *acquireOptions) isQuiet() bool {
	if o.askGiven {
		return !o.ask
	}
	return o.giveWay || o.isOneTry()
}

// ofRequest returns the options of each request for a lock.
func (o *acquireOptions) ofRequest() []client.LockOption {
	options := []client.LockOption{client.Reason(o.reason)}
	if o.owner != "" {
		options = append(options, client.DetectDeadlock(o.owner))
	}
	if o.isQuiet() {
		options = append(options, client.Quiet())
	}
	return options
}

// newGuardianCommand returns the hidden command with which acquire starts CMD's parent.
func newGuardianCommand() *cobra.Command {
	return &cobra.Command{
		Use:                guardianVerb,
		Hidden:             true,
		DisableFlagParsing: true,
		PersistentPreRunE:  func(*cobra.Command, []string) error { return nil },
		RunE:               func(_ *cobra.Command, args []string) error { return supervise.RunGuardian(args) },
	}
}

const guardianVerb = "guardian"

func (o *acquireOptions) acquire(ctx, bound context.Context, c *client.Client) (*heldLock, error) {
	opening := client.OpenOptions{Write: true, Create: client.File, Kind: api.File, LockDelay: o.terms.LockDelay}
	if o.giveWay {
		opening.Events = []api.EventKind{api.EventConflictingLock}
	}
	h, err := c.Open(bound, o.path.String(), opening)
	if err != nil {
		return nil, withAdvice(err, o.path, client.File)
	}
	return o.tryOrWait(ctx, 0, "no answer from the cell yet", func(ctx context.Context, w *lockWait) (*heldLock, error) {
		acquire, options := h.TryAcquire, o.ofRequest()
		if w != nil {
			acquire, options = h.Acquire, append(options, client.OnQueued(w.queued))
		}
		mode := api.Exclusive
		if o.shared {
			mode = api.Shared
		}
		lock, err := acquire(ctx, mode, options...)
		if err != nil {
			return nil, err
		}
		held := holding(lock, lock.Release)
		if o.giveWay {
			held.request = listenForConflicts(h, lock)
		}
		return held, nil
	})
}

// acquireAll takes all locks, or none. If it has to wait, it says what for.
func (o *acquireOptions) acquireAll(ctx, _ context.Context, c *client.Client) (*heldLock, error) {
	paths := term.Each(o.paths, api.Path.String)
	options := recipe.AllOptions{LockDelay: o.recipeDelay(), Options: o.ofRequest()}
	if o.shared {
		paths, options.Shared = nil, paths
	}
	return o.tryOrWait(ctx, minCampaign, "no answer from the cell yet", func(ctx context.Context, w *lockWait) (*heldLock, error) {
		if options.Try = w == nil; w != nil {
			options.OnQueued = w.queuedFor
		}
		all, err := recipe.AcquireAll(ctx, c, paths, options)
		return holdingAll(all), withAdvice(err, o.pathOf(err), client.File)
	})
}

// holdingAll returns locks that are released together, the last first; nil for nil.
func holdingAll(all *recipe.Locks) *heldLock {
	if all == nil {
		return nil
	}
	return &heldLock{lock: together{all}, locks: all.Locks(), giveUp: all.Release}
}

// pathOf returns which path an error is about.
func (o *workOptions) pathOf(err error) api.Path {
	var e *api.Error
	if errors.As(err, &e) {
		for _, p := range o.paths {
			if p.String() == e.Path {
				return p
			}
		}
	}
	return o.path
}

// isOneTry reports whether there is no wait for the lock.
func (o *workOptions) isOneTry() bool { return o.try || o.waits && o.wait <= o.begun() }

// taking takes what is to be held; with nil in one try, without waiting.
type taking = func(context.Context, *lockWait) (*heldLock, error)

// tryOrWait takes what is to be held, in one try if no wait is requested. --wait limits a wait, but to no less
// than minimum. The user sees what it waits for, at first early.
func (o *workOptions) tryOrWait(ctx context.Context, minimum time.Duration, early string, take taking) (*heldLock, error) {
	if o.isOneTry() {
		bound, cancel := o.withTimeout(ctx)
		defer cancel()
		t, err := take(bound, nil)
		return t, o.explainRefusal(err)
	}
	return o.waitFor(ctx, minimum, early, take)
}

// waitFor is tryOrWait that always waits.
func (o *workOptions) waitFor(ctx context.Context, minimum time.Duration, early string, take taking) (*heldLock, error) {
	ranOut := api.Errorf(api.DeadlineExceeded, "--wait %v ran out", o.wait)
	if o.waits {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, max(o.wait-o.begun(), minimum), ranOut)
		defer cancel()
	}
	w := o.showWait(early)
	defer w.progress.Stop()
	t, err := take(ctx, w)
	if err != nil && o.waits && errors.Is(context.Cause(ctx), ranOut) {
		err = &exitError{exitWaited, o.waitRanOut(o.pathOf(err), w.describe(w.progress.Last()))}
	}
	return t, err
}

// explainRefusal gives the refusal of a lock without a wait its text and exit code.
func (o *workOptions) explainRefusal(err error) error {
	var refused *api.Error
	if !errors.As(err, &refused) || refused.Code != api.LockHeld && refused.Code != api.LockDelayed {
		return err
	}
	told := o.explainHeld(refused)
	if o.waits {
		return &exitError{exitWaited, o.waitRanOut(o.pathOf(refused), told.Message)}
	}
	told.Message += "; try again later, or wait without --try"
	return &exitError{exitHeld, told}
}

// explainHeld returns a refusal with who holds the lock, since when and why.
func (o *workOptions) explainHeld(e *api.Error) *api.Error {
	told := *e
	told.Op, told.Path, told.Err = o.verb, o.pathOf(e).String(), nil
	switch {
	case e.Code == api.LockDelayed:
		told.Message = fmt.Sprintf("a holder failed, and nobody may have the lock for another %s", term.Roughly(e.Remaining))
	case len(e.Holders) > 0:
		told.Message = heldBy(e.Holders)
	}
	return &told
}

type semaphoreOptions struct {
	workOptions
	slots  int
	resize bool
}

func semaphoreVerb(g *globals, cmd *cobra.Command) {
	o := &semaphoreOptions{workOptions: workOptions{globals: g, noun: "directory"}}
	cmd.Args = o.takeArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.takeStreams(cmd)
		if err := o.validate(cmd.Flags().Changed); err != nil {
			return err
		}
		if !o.resize {
			return o.runWork(cmd.Context(), o.takeSlot)
		}
		err := o.withSession(cmd.Context(), o.path.Cell(), func(ctx context.Context, c *client.Client) error {
			return recipe.ResizeSemaphore(ctx, c, o.path.String(), o.slots)
		})
		if err != nil {
			return withAdvice(err, o.path, client.Directory)
		}
		return o.did(o.out, o.err, term.Fields{"path", o.path.String(), "slots", o.slots}, "%v has %d slots", o.path, o.slots)
	}
	flags := cmd.Flags()
	o.addFlags(flags)
	flags.IntVar(&o.slots, "slots", 0, fmt.Sprintf("how many may hold the semaphore at a time, 1 to %d", recipe.MaxSlots))
	o.addTry(flags, "do not wait if all slots are taken or delayed")
	flags.BoolVar(&o.resize, "resize", false, "make --slots the size of the semaphore, instead of taking a slot")
	keepApart(flags, "resize", "it takes no slot, and runs no command", append(flagsOfHolding(), "try")...)
}

func (o *semaphoreOptions) validate(given func(flag string) bool) error {
	switch {
	case !given("slots"):
		return usagef("semaphore: --slots is missing: how many may hold %v at a time?", o.path)
	case o.slots < 1 || o.slots > recipe.MaxSlots:
		return usagef("--slots %d: want 1 to %d", o.slots, recipe.MaxSlots)
	case o.resize && len(o.argv) > 0:
		return usagef("semaphore: --resize takes no slot, and runs no command")
	}
	return o.workOptions.validate()
}

func (o *semaphoreOptions) takeSlot(ctx, _ context.Context, c *client.Client) (*heldLock, error) {
	sem := recipe.NewSemaphore(c, o.path.String(), o.slots)
	options := recipe.SemaphoreOptions{LockDelay: o.recipeDelay(), Reason: o.reason}
	early := fmt.Sprintf("all %d slots are taken, or the cell does not answer ('chubbyctl locks %v' shows who has them, and who waits)", o.slots, o.path)
	return o.tryOrWait(ctx, minCampaign, early, func(ctx context.Context, w *lockWait) (*heldLock, error) {
		acquire := sem.Acquire
		if w == nil {
			acquire = sem.TryAcquire
		}
		permit, err := acquire(ctx, options)
		var refused *api.Error
		if errors.As(err, &refused) { // the slots are tried in random order
			slices.SortFunc(refused.Holders, func(a, b api.Holder) int { return cmp.Compare(a.Session, b.Session) })
		}
		if refused != nil && refused.Code == api.InvalidArgument && refused.Path == o.path.String() { // it has another size
			return nil, fmt.Errorf("%w; 'chubbyctl semaphore %s --slots %d --resize' does that", err, quoted(o.path.String()), o.slots)
		}
		if err != nil {
			return nil, withAdvice(err, o.path, client.Directory)
		}
		held, slot := holding(permit.Lock(), permit.Release), permit.Slot()
		held.slot = &slot
		return held, nil
	})
}
