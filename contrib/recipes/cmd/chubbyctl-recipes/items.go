package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/recipes"
)

// arguments wants so many arguments.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef("want '%s'; see '%s --help'", cmd.UseLine(), cmd.CommandPath())
		}
		return nil
	}
}

// putFields is what queue put -o json prints.
type putFields struct {
	Path     string  `json:"path"`
	ID       string  `json:"id"`
	Priority int     `json:"priority"`
	DelayS   float64 `json:"delay_s"`
}

func newPutCommand(g *globals) *cobra.Command {
	var priority int
	var delay time.Duration
	cmd := &cobra.Command{
		Use:   "put PATH [DATA|-]",
		Short: "Put an item into a work queue",
		Long: fmt.Sprintf(`put adds an item to the queue PATH, a directory, which it creates if absent (the
directory above has to exist), and prints the id of the item. The data are the
second argument, or standard input without one, or if it is "-"; at most %d
bytes.

If the cell does not answer, the item may be in the queue: 'chubbyctl queue list
PATH' shows it, and putting it again may have it done twice.`, recipes.MaxItemSize),
		Example: `  chubbyctl queue put /ls/local/films film18 --priority 5
  chubbyctl queue put /ls/local/mails --delay 10m - <reminder.txt`,
		Args: arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := g.parsePath("queue put", args[0])
			switch {
			case err != nil:
				return err
			case priority < -recipes.MaxPriority || priority > recipes.MaxPriority:
				return usagef("--priority %d: want %d to %d", priority, -recipes.MaxPriority, recipes.MaxPriority)
			case delay < 0 || delay > recipes.MaxDelay:
				return usagef("--delay %v: want 0 to %v", delay, recipes.MaxDelay)
			}
			data, err := readItem(cmd.InOrStdin(), args[1:])
			if err != nil {
				return err
			}
			return g.withQueue(cmd.Context(), p, func(ctx context.Context, _ *client.Client, q *recipes.Queue) error {
				id, err := q.Put(ctx, data, recipes.Priority(priority), recipes.Delay(delay))
				switch {
				case errors.Is(err, api.Uncertain):
					return &exitError{exitUncertain, fmt.Errorf("%w; it may be in the queue as %s", err, id)}
				case err != nil:
					return withAdvice(err, p)
				case g.json():
					err = g.object(g.out, putFields{p.String(), id, priority, delay.Seconds()})
				default:
					_, err = fmt.Fprintln(g.out, id)
				}
				if err != nil {
					return &exitError{exitFailed, fmt.Errorf("item %s is in the queue, but that could not be written: %w", id, err)}
				}
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&priority, "priority", 0, fmt.Sprintf("%d to %d; items of a higher one come first", -recipes.MaxPriority, recipes.MaxPriority))
	cmd.Flags().DurationVar(&delay, "delay", 0, "for how long nobody takes the item, 0 to 720h")
	return cmd
}

// readItem returns the data of an item. Those that are not on the command line come from standard input.
func readItem(in io.Reader, given []string) ([]byte, error) {
	if len(given) > 0 && given[0] != "-" {
		return []byte(given[0]), nil
	}
	data, err := io.ReadAll(io.LimitReader(in, recipes.MaxItemSize+1)) // Put refuses what is longer
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the data from standard input: %w", err)
	case len(given) == 0 && len(data) == 0:
		return nil, usagef("queue put: there are no data, and nothing came from standard input; '' puts an item without data. Nothing was sent")
	}
	return data, nil
}

// withAdvice adds to a NotFound how to create the directory above a queue.
func withAdvice(err error, p api.Path) error {
	if api.CodeOf(err) == api.NotFound {
		return fmt.Errorf("%w; chubbyctl mkdir -p %s does", err, p.Parent())
	}
	return err
}

func newListCommand(g *globals) *cobra.Command {
	dead := false
	cmd := &cobra.Command{
		Use:     "list PATH",
		Aliases: []string{"ls"},
		Short:   "List the items of a work queue, or its dead letters",
		Long: `list shows the items of the queue PATH, in the order in which they are taken: how
often each was begun, and who works on it, for how long it is delayed, or why it
failed last. With --dead it shows the dead letters, the oldest first, with the
last reason.`,
		Example: `  chubbyctl queue list /ls/local/films --dead
  chubbyctl -o json queue list /ls/local/films | jq 'select(.attempts > 2)'`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := g.parsePath("queue list", args[0])
			if err != nil {
				return err
			}
			return g.withQueue(cmd.Context(), p, func(ctx context.Context, c *client.Client, q *recipes.Queue) error {
				return g.list(ctx, c, q, p, dead)
			})
		},
	}
	cmd.Flags().BoolVar(&dead, "dead", false, "list the dead letters")
	return cmd
}

// itemFields is an item or a dead letter, as -o json shows it.
type itemFields struct {
	ID        string         `json:"id"`
	Path      string         `json:"path"`
	Priority  int            `json:"priority"`
	Bytes     int            `json:"bytes"`
	Attempts  int            `json:"attempts"`
	State     string         `json:"state"`             // free, delayed, held, dead or unusable
	DelayS    float64        `json:"delay_s,omitempty"` // that is left, if it is delayed
	Reason    string         `json:"reason,omitempty"`
	ModifiedS int64          `json:"modified_s"` // how long ago it was put, begun or given back last
	Holders   []holderFields `json:"holders,omitempty"`
	Error     string         `json:"error,omitempty"` // if it is unusable
}

// holderFields is a worker.
type holderFields struct {
	Session   string `json:"session"`
	Principal string `json:"principal"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	SinceS    int64  `json:"since_s"`
	Reason    string `json:"reason"`
}

// describe returns the fields of an item, and says what its state does not.
func describe(one recipes.QueuedItem) (f itemFields, note string) {
	ago := since(one.ModifiedUnix)
	f = itemFields{ID: one.ID, Path: one.Path, Priority: one.Priority, Bytes: one.Size, Attempts: one.Attempts,
		State: "free", Reason: one.Reason, ModifiedS: int64(ago.Seconds())}
	for _, h := range one.Holders {
		f.Holders = append(f.Holders, holderFields{h.Session.String(), h.Principal, h.Host, h.PID, int64(since(h.SinceUnix).Seconds()), h.Reason})
	}
	var parts []string
	switch left := one.Delay - ago; {
	case one.Err != nil:
		f.State, f.Error = "unusable", one.Err.Error()
		parts = append(parts, f.Error)
	case one.Dead:
		f.State = "dead"
	case len(one.Holders) > 0:
		f.State = "held"
		h := one.Holders[0]
		parts = append(parts, fmt.Sprintf("%s on %s (pid %d, %v) for %v", h.Principal, h.Host, h.PID, h.Session, since(h.SinceUnix)))
	case left > 0:
		f.State, f.DelayS = "delayed", left.Seconds()
		parts = append(parts, fmt.Sprintf("for another %v", left.Round(time.Second)))
	}
	if f.Reason != "" {
		parts = append(parts, f.Reason)
	}
	return f, strings.Join(parts, "; ")
}

// list prints the items, or the dead letters.
func (g *globals) list(ctx context.Context, c *client.Client, q *recipes.Queue, p api.Path, dead bool) error {
	read := q.List
	if dead {
		read = q.DeadLetters
	}
	items, err := read(ctx)
	if err != nil {
		return err
	}
	rows := [][]any{{"ID", "PRIORITY", "BYTES", "TRIES", "STATE", "NOTE"}}
	for _, one := range items {
		f, note := describe(one)
		if !g.json() {
			rows = append(rows, []any{f.ID, f.Priority, f.Bytes, f.Attempts, f.State, note})
		} else if err := g.object(g.out, f); err != nil {
			return err
		}
	}
	switch {
	case g.json():
		return nil
	case len(items) > 0:
		return g.table(rows)
	case dead:
		g.say("%v has no dead letters", p)
		return nil
	}
	if _, err := c.Stat(ctx, p.String()); errors.Is(err, api.NotFound) {
		g.say("%v has no items: there is no such queue; 'chubbyctl queue put' makes it", p)
		return nil
	}
	letters, err := q.DeadLetters(ctx)
	if err == nil && len(letters) > 0 {
		g.say("%v has no items, and %d dead letters; --dead lists them", p, len(letters))
	} else if err == nil {
		g.say("%v has no items", p)
	}
	return err
}

// deadLetterFields is what queue retry and queue discard print of each with -o json.
type deadLetterFields struct {
	Path string `json:"path"`
	ID   string `json:"id"`
}

func newDeadLetterCommand(g *globals, verb, short, done string, act func(q *recipes.Queue, ctx context.Context, id string) error) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " PATH ID...",
		Short: short,
		Long: fmt.Sprintf(`%s. 'chubbyctl queue list PATH --dead' shows their ids.
All of them are tried; exit code %d if one of them is no dead letter.`, short, exitFailed),
		Example: fmt.Sprintf("  chubbyctl queue list /ls/local/films --dead -o json | jq -r .id |\n    xargs chubbyctl queue %s /ls/local/films", verb),
		Args:    arguments(2, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := g.parsePath("queue "+verb, args[0])
			if err != nil {
				return err
			}
			return g.withQueue(cmd.Context(), p, func(ctx context.Context, _ *client.Client, q *recipes.Queue) error {
				var all error
				for i, id := range args[1:] {
					err := act(q, ctx, id)
					switch {
					case err != nil && i > 0 && exitCode(err) == exitUnavailable: // others may be done
						err = &exitError{exitUncertain, err}
					case err == nil && g.json():
						err = g.object(g.out, deadLetterFields{p.String(), id})
					case err == nil && g.verbose:
						g.notice("item " + id + " " + done)
					}
					all = errors.Join(all, err)
				}
				return all
			})
		},
	}
}
