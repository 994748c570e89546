package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/internal/supervise"
	"github.com/chubbylock/chubby/internal/tenure"
)

// queueTakeOptions are those of queue take.
type queueTakeOptions struct {
	workOptions
	attempts   int
	retryDelay time.Duration
}

func newQueueTakeCommand(g *globals) *cobra.Command {
	o := &queueTakeOptions{workOptions: workOptions{globals: g, noun: "directory"}}
	cmd := &cobra.Command{
		Use:   "take PATH [flags] -- CMD ARG...",
		Short: "Run a command on the next item of a work queue",
		Long: fmt.Sprintf(`take waits for the next item of the queue PATH, a directory, which it creates if
absent (the directory above has to exist), and runs CMD with the data of the item
as standard input, while it holds the item. If CMD ends with 0, the item is done,
and out of the queue. Otherwise the try has failed: the item is back in its place,
and nobody takes it for --retry-delay. One take is for one item; a loop works
through a queue.

CMD runs as under acquire, with the same environment and the same safety (see
'chubbyctl acquire --help'): if the item could be lost, CMD is stopped before
another can have it. CHUBBY_LOCK is the path of the item's file, and there are
other variables:
  CHUBBY_ITEM     the id of the item
  CHUBBY_ATTEMPT  which try this is, from 1 on; 0 for an item of v0.1.0

A try counts from before CMD begins, also if this machine crashes; if CMD could not
be begun, it does not count, and the item is back in its place at once. With --attempts
an item that has been begun so often is a dead letter if it is not done then:
'chubbyctl queue list PATH --dead' shows it with the last reason. All workers of a
queue should say the same number. A CMD that is interrupted has failed, too. When
there are %d dead letters, take with --attempts takes nothing, and fails.

With --retry another item is taken, under a new session, when one was lost, or the session
ended while none was free.

Exit codes: CMD's own, and 128+n if signal n ended it; %d if the item was lost
while CMD ran, or before the cell said that it is done; %d if --wait ran out; %d and
%d if CMD could not be run or found (it is looked up before an item is taken); %d if
no master was found within --timeout, and %d if the cell did not say within it that the
item is done; %d if permission was denied.`, recipe.MaxDeadLetters, exitLost, exitWaited, supervise.ExitNotRunnable, supervise.ExitNotFound, exitUnavailable, exitUncertain, exitDenied),
		Example: `  chubbyctl queue take /ls/local/films --attempts 3 -- ./convert
  chubbyctl queue take /ls/local/mails --retry-delay 1m -- sendmail -t
  while chubbyctl queue take /ls/local/films --wait 10s -- ./convert; do :; done`,
		Args:              o.takeArguments,
		ValidArgsFunction: g.completePath,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.takeStreams(cmd)
			if err := o.validate(); err != nil {
				return err
			}
			return o.runWork(cmd.Context(), o.takeItem)
		},
	}
	flags := cmd.Flags()
	o.addCommandFlags(flags)
	flags.IntVar(&o.attempts, "attempts", 0, fmt.Sprintf("how often an item is begun at most, 1 to %d, before it is a dead letter; 0: without limit", recipe.MaxAttempts))
	flags.DurationVar(&o.retryDelay, "retry-delay", 0, "for how long nobody takes the item after CMD has failed, 0 to 720h")
	flags.DurationVar(&o.wait, "wait", 0, "how long to wait for an item, a second at least (default: without limit)")
	flags.DurationVar(&o.lockDelay, "lock-delay", api.DefaultLockDelay, "for how long nobody may have the item if this session fails, 0 to 1m")
	flags.StringVar(&o.reason, "reason", "", "what the item is taken for, shown to others")
	flags.StringVar(&o.sequencerFile, "sequencer-file", "", "keep the sequencer in this file, which no other chubbyctl uses, while the item is held, for other programs")
	return cmd
}

// validate checks the flags together.
func (o *queueTakeOptions) validate() error {
	switch {
	case len(o.argv) == 0:
		return usagef("queue take: the command is missing; put it behind --, as in 'chubbyctl queue take %v -- ./convert'", o.path)
	case o.attempts < 0 || o.attempts > recipe.MaxAttempts:
		return usagef("--attempts %d: want 1 to %d, or 0 for no limit", o.attempts, recipe.MaxAttempts)
	case o.retryDelay < 0 || o.retryDelay > recipe.MaxDelay:
		return usagef("--retry-delay %v: want 0 to %v", o.retryDelay, recipe.MaxDelay)
	}
	return o.workOptions.validate()
}

// takeItem takes an item. If it has to wait, it says what for.
func (o *queueTakeOptions) takeItem(ctx, _ context.Context, c *client.Client) (*heldLock, error) {
	q := recipe.NewQueue(c, o.path.String(), recipe.QueueOptions{
		LockDelay: o.recipeDelay(), Reason: o.reason, Attempts: o.attempts,
		OnUnusable: func(id string, err error) { o.warn(fmt.Sprintf("item %s is passed over: %v", id, err)) },
	})
	waiting, cancel, explain := o.withWait(ctx, minCampaign)
	defer cancel()
	w := o.showWait(fmt.Sprintf("no item is free, or the cell does not answer ('chubbyctl queue list %v' shows them)", o.path))
	defer w.stop()
	item, err := q.Take(waiting)
	if err != nil {
		return nil, explain(withAdvice(err, o.path, client.Directory), w.last())
	}
	t := holding(item.Lock(), item.Return) // which does nothing once finish has said what became of the item
	t.item = item
	t.finish = func(ctx context.Context, err error) error { return o.finishItem(ctx, item, err) }
	return t, nil
}

// finishItem says what became of an item: done if CMD ended with 0, and failed otherwise. It returns how chubbyctl ends. Of
// an item whose CMD was not begun it says nothing: a try that has not begun does not count.
func (o *queueTakeOptions) finishItem(ctx context.Context, item *recipe.Item, ran error) error {
	switch {
	case errors.As(ran, new(tenure.NotBegun)):
		return ran
	case ran != nil && item.Err() != nil:
		return ran // which says that it was lost; without an error the cell says whether it was
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if ran == nil {
		err := item.Done(ctx)
		switch {
		case err == nil:
			return nil
		case isLost(err):
			return &exitError{exitLost, fmt.Errorf("CMD ended with 0, and item %s was lost before the cell said that it is done: %w", item.ID(), err)}
		}
		return fmt.Errorf("CMD ended with 0, and item %s may not be done: %w", item.ID(), afterSteps(true, err))
	}
	if err := item.Fail(ctx, failureReason(ran), o.retryDelay); err != nil {
		o.notice(fmt.Sprintf("CMD has failed, and item %s may not be given back yet (%v); it is free when lease and lock-delay have ended, at the latest", item.ID(), err))
	} else if item.IsLastAttempt() {
		o.warn(fmt.Sprintf("item %s has failed for the last time, and is a dead letter ('chubbyctl queue list %v --dead')", item.ID(), o.path))
	}
	return ran
}

// failureReason says why CMD has failed, for those who look at the item.
func failureReason(err error) string {
	var own *exitError
	text := err.Error()
	switch isOwn := errors.As(err, &own); {
	case isOwn && own.err == nil && own.code > exitBySignal:
		text = fmt.Sprintf("exit code %d (signal %d, or its own)", own.code, own.code-exitBySignal)
	case isOwn && own.err == nil:
		text = fmt.Sprintf("exit code %d", own.code)
	}
	return text[:min(len(text), api.MaxReason)]
}
