package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func newQueueListCommand(g *globals) *cobra.Command {
	dead := false
	cmd := &cobra.Command{
		Use:     "list PATH",
		Aliases: []string{"ls"},
		Short:   "List the items of a work queue, or its dead letters",
		Long: `list shows the items of the queue PATH, in the order in which they are taken: how
often each was begun, and who works on it, for how long it is delayed, or why it
failed last. 'chubbyctl cat' shows the file of an item (-o json has its path): a
line of JSON, and the data.

With --dead it shows the dead letters, the oldest first, with the last reason.
They stay until 'queue retry' makes them items again, or 'queue discard' deletes
them.`,
		Example: `  chubbyctl queue list /ls/local/films
  chubbyctl queue list /ls/local/films --dead
  chubbyctl -o json queue list /ls/local/films | jq 'select(.attempts > 2)'`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: onlyFirst(g.completePath),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := g.parseQueue("queue list", args[0])
			if err != nil {
				return err
			}
			return g.withSessionAt(cmd.Context(), p.Cell(), p, func(ctx context.Context, c *client.Client) error {
				return g.listQueue(ctx, cmd, c, p, dead)
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

func newItemFields(one recipe.QueuedItem) itemFields {
	ago := since(one.ModifiedUnix)
	f := itemFields{ID: one.ID, Path: one.Path, Priority: one.Priority, Bytes: one.Size, Attempts: one.Attempts,
		State: "free", Reason: one.Reason, ModifiedS: int64(ago.Seconds())}
	for _, h := range one.Holders {
		f.Holders = append(f.Holders, newHolderFields(h))
	}
	switch left := one.Delay - ago; {
	case one.Err != nil:
		f.State, f.Error = "unusable", one.Err.Error()
	case one.Dead:
		f.State = "dead"
	case len(one.Holders) > 0:
		f.State = "held"
	case left > 0:
		f.State, f.DelayS = "delayed", left.Seconds()
	}
	return f
}

// note says of an item what its state does not.
func (f itemFields) note(one recipe.QueuedItem) string {
	var parts []string
	switch f.State {
	case "held":
		h := one.Holders[0]
		parts = append(parts, fmt.Sprintf("%s for %s", whoIs(h), term.Roughly(since(h.SinceUnix))))
	case "delayed":
		parts = append(parts, "for another "+term.Roughly(time.Duration(f.DelayS*float64(time.Second))))
	case "unusable":
		parts = append(parts, f.Error)
	}
	if f.Reason != "" {
		parts = append(parts, f.Reason)
	}
	return strings.Join(parts, "; ")
}

// listQueue prints the items, or the dead letters.
func (g *globals) listQueue(ctx context.Context, cmd *cobra.Command, c *client.Client, p api.Path, dead bool) error {
	q := recipe.NewQueue(c, p.String(), recipe.QueueOptions{})
	list := q.List
	if dead {
		list = q.DeadLetters
	}
	items, err := list(ctx)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	t := g.output.NewTable(out, "ID", "PRIORITY?", "BYTES?", "TRIES", "STATE", "NOTE")
	for _, one := range items {
		f := newItemFields(one)
		if g.json() {
			if err := g.output.Print(out, f); err != nil {
				return err
			}
			continue
		}
		t.Add(f.ID, f.Priority, f.Bytes, f.Attempts, f.State, f.note(one))
	}
	switch {
	case g.json():
		return nil
	case len(items) == 0:
		return g.remarkEmptyQueue(ctx, c, q, p, dead)
	}
	return t.Flush()
}

// remarkEmptyQueue says why nothing is listed: what was asked for may be elsewhere.
func (g *globals) remarkEmptyQueue(ctx context.Context, c *client.Client, q *recipe.Queue, p api.Path, dead bool) error {
	if dead {
		term.Remark(g.stderr, "%v has no dead letters", p)
		return nil
	}
	if _, err := c.Stat(ctx, p.String()); errors.Is(err, api.NotFound) {
		term.Remark(g.stderr, "%v has no items: there is no such queue; 'chubbyctl queue put' makes it", p)
		return nil
	}
	letters, err := q.DeadLetters(ctx)
	switch {
	case err != nil:
		return err
	case len(letters) > 0:
		term.Remark(g.stderr, "%v has no items, and %s; --dead lists them", p, term.Counted(len(letters), "dead letter"))
	default:
		term.Remark(g.stderr, "%v has no items", p)
	}
	return nil
}
