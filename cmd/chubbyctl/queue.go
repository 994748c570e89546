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
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func newQueueCommand(g *globals) *cobra.Command {
	group := newGroup("queue", "Put items into a work queue, run a command on them, list and retry them",
		newQueuePutCommand(g), newQueueTakeCommand(g), newQueueListCommand(g),
		newDeadLetterCommand(g, deadLetterVerb{
			verb: "retry", short: "Make dead letters items again", done: "is in the queue again",
			long: `retry puts dead letters back into the queue PATH, in their old places, with all
their tries.`,
			act: (*recipe.Queue).Retry,
		}),
		newDeadLetterCommand(g, deadLetterVerb{
			verb: "discard", short: "Delete dead letters", done: "is deleted",
			long: `discard deletes dead letters of the queue PATH, with their data.`,
			act:  (*recipe.Queue).Discard,
		}))
	group.Long = `A work queue is a directory with a file for each item, which holds a line that
says what is known of the item, and its data. A worker holds the lock of the file
while it works, and deletes the file when it is done: so no item is lost, and no
two work on one at a time. But an item whose worker dies is begun again: its work
is to be such that it can be.

Items of a higher priority come first, then those that were put first. An item
that has been begun as often as --attempts of its worker allows, and is not done,
is a dead letter: it stays, and nobody takes it, until somebody retries or
discards it.

Programs that use recipe.Queue take part in the same queues.`
	return group
}

// queuePutOptions are those of queue put.
type queuePutOptions struct {
	*globals
	priority int
	delay    time.Duration
}

func newQueuePutCommand(g *globals) *cobra.Command {
	o := &queuePutOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "put PATH [DATA|-]",
		Short: "Put an item into a work queue",
		Long: fmt.Sprintf(`put adds an item to the queue PATH, a directory, which it creates if absent (the
directory above has to exist), and prints the id of the item. The data are the
second argument, or standard input without one, or if it is "-"; at most %d
bytes.

With --delay nobody takes the item for that long, counted in whole seconds by the
wall clocks of the cell's masters: if those are wrong, it is taken earlier or
later.

If the cell does not answer, the item may be in the queue: 'chubbyctl queue list
PATH' shows it, and putting it again may have it done twice.`, recipe.MaxItemSize),
		Example: `  chubbyctl queue put /ls/local/films film17
  chubbyctl queue put /ls/local/films film18 --priority 5
  chubbyctl queue put /ls/local/mails --delay 10m - <reminder.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 {
				return nil
			}
			return usagef(`queue put: want a path and the data, in quotes if there are spaces, or "-" to read them from standard input; see 'chubbyctl queue put --help'`)
		},
		ValidArgsFunction: onlyFirst(g.completePath),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := g.parseQueue("queue put", args[0])
			if err != nil {
				return err
			}
			switch {
			case o.priority < -recipe.MaxPriority || o.priority > recipe.MaxPriority:
				return usagef("--priority %d: want %d to %d", o.priority, -recipe.MaxPriority, recipe.MaxPriority)
			case o.delay < 0 || o.delay > recipe.MaxDelay:
				return usagef("--delay %v: want 0 to %v", o.delay, recipe.MaxDelay)
			}
			data, err := g.readItem(cmd, args[1:], p)
			if err != nil {
				return err
			}
			return o.putItem(cmd, p, data)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.priority, "priority", 0, fmt.Sprintf("%d to %d; items of a higher one come first", -recipe.MaxPriority, recipe.MaxPriority))
	flags.DurationVar(&o.delay, "delay", 0, "for how long nobody takes the item, 0 to 720h")
	return cmd
}

// parseQueue reads the path of a queue.
func (g *globals) parseQueue(verb, text string) (api.Path, error) {
	p, err := g.parsePath(text)
	if err == nil && p.IsRoot() {
		err = usagef("%s: %v is the root directory of its cell; name a directory below it, as in %v/films", verb, p, p)
	}
	return p, err
}

// readItem returns the data of an item. Those that are not on the command line come from standard input.
func (g *globals) readItem(cmd *cobra.Command, given []string, p api.Path) ([]byte, error) {
	argument := "-"
	if len(given) > 0 {
		argument = given[0]
	}
	data, err := g.readInput(cmd, argument, p, "data")
	if err != nil {
		return nil, err
	}
	if err := context.Cause(cmd.Context()); err != nil {
		return nil, err // only a part was read
	}
	if len(given) == 0 && len(data) == 0 {
		return nil, usagef("queue put: there are no data, and nothing came from standard input; '' puts an item without data. Nothing was sent")
	}
	return data, nil
}

// putFields is what queue put -o json prints.
type putFields struct {
	Path     string  `json:"path"`
	ID       string  `json:"id"`
	Priority int     `json:"priority"`
	DelayS   float64 `json:"delay_s"`
}

func (o *queuePutOptions) putItem(cmd *cobra.Command, p api.Path, data []byte) error {
	return o.withSessionAt(cmd.Context(), p.Cell(), p, func(ctx context.Context, c *client.Client) error {
		id, err := recipe.NewQueue(c, p.String(), recipe.QueueOptions{}).Put(ctx, data, recipe.Priority(o.priority), recipe.Delay(o.delay))
		switch {
		case errors.Is(err, api.Uncertain):
			return fmt.Errorf("%w; it may be in the queue as %s", creation{err}, id)
		case err != nil:
			return withAdvice(err, p, client.Directory)
		case o.json():
			err = o.output.Print(cmd.OutOrStdout(), putFields{p.String(), id, o.priority, o.delay.Seconds()})
		default:
			_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
		}
		if err != nil {
			return &exitError{exitFailed, fmt.Errorf("item %s is in the queue, but that could not be written: %w", id, err)}
		}
		return nil
	})
}

// deadLetterVerb is something that is done with dead letters.
type deadLetterVerb struct {
	verb, short, long, done string
	act                     func(q *recipe.Queue, ctx context.Context, id string) error
}

// deadLetterFields is what queue retry and queue discard print of each with -o json.
type deadLetterFields struct {
	Path string `json:"path"`
	ID   string `json:"id"`
}

func newDeadLetterCommand(g *globals, v deadLetterVerb) *cobra.Command {
	return &cobra.Command{
		Use:   v.verb + " PATH ID...",
		Short: v.short,
		Long: v.long + fmt.Sprintf(`
'chubbyctl queue list PATH --dead' shows their ids. All of them are tried; exit
code %d if one of them is no dead letter.`, exitFailed),
		Example: fmt.Sprintf(`  chubbyctl queue %[1]s /ls/local/films p0.JGQ6ZPKW5QHYDMDRV3ZDWXNFJ4
  chubbyctl queue list /ls/local/films --dead -o json | jq -r .id |
    xargs chubbyctl queue %[1]s /ls/local/films`, v.verb),
		Args: arguments(cobra.MinimumNArgs(2)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, half string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return g.completePath(cmd, args, half)
			}
			return g.completeDeadLetters(cmd, args, half)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := g.parseQueue("queue "+v.verb, args[0])
			if err != nil {
				return err
			}
			return g.withSessionAt(cmd.Context(), p.Cell(), p, func(ctx context.Context, c *client.Client) error {
				q := recipe.NewQueue(c, p.String(), recipe.QueueOptions{})
				var all []error
				done := false
				for _, id := range args[1:] {
					err := v.act(q, ctx, id)
					done = done || err == nil || mayBeDone(err)
					switch {
					case err != nil:
					case g.json():
						err = g.output.Print(cmd.OutOrStdout(), deadLetterFields{p.String(), id})
					case g.verbose:
						g.notice(g.stderr, fmt.Sprintf("item %s %s", id, v.done))
					}
					all = append(all, err)
				}
				for i, err := range all { // also those before the first that was done
					all[i] = afterSteps(done, err)
				}
				return errors.Join(all...)
			})
		},
	}
}

// completeDeadLetters offers the ids of the dead letters of a queue.
func (g *globals) completeDeadLetters(cmd *cobra.Command, args []string, half string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	p, err := g.parsePath(args[0])
	if err == nil {
		err = g.forCompletion().withSession(cmd.Context(), p.Cell(), func(ctx context.Context, c *client.Client) error {
			list, err := recipe.NewQueue(c, p.String(), recipe.QueueOptions{}).DeadLetters(ctx)
			for _, one := range list {
				ids = append(ids, one.ID+"\t"+term.Printable(one.Reason))
			}
			return err
		})
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return withPrefix(half, ids), cobra.ShellCompDirectiveNoFileComp
}
