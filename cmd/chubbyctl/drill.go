package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// drillOptions are one drill, and what is said of it.
type drillOptions struct {
	*globals
	yes    bool
	reason string
	limit  time.Duration // of the longest time without an answer; 0 if there is none
	dir    string        // where the drill has its own file

	kind    client.DrillKind
	cell    string
	to      string        // of a fail-over: the next master
	length  time.Duration // of an outage, or of the silence of a slow client
	session api.SessionID // that is ended
	file    string        // that the slow client has in its cache; "" if it is the drill's own

	out, err io.Writer
}

func newDrillCommand(g *globals) *cobra.Command {
	group := newGroup("drill", "Try a failure on a cell in use: see first whom it would hit, and then what it did",
		newDrillFailOverCommand(g), newDrillOutageCommand(g), newDrillSessionLossCommand(g), newDrillSlowClientCommand(g))
	group.Long = fmt.Sprintf(`drill makes a cell do at a moment of your choice what it will do in a failure at a moment
that nobody chooses. Without --yes it does nothing, says whom the drill would hit, and
exits with %d: who holds locks of which no sequencer was shown to the cell, whose lease
and lock-delay are too short for it, and who waits in queues.

With --yes it does it, and says how long calls had no answer, measured by a session of
its own that writes a file all the time, which sessions were lost, which locks have
another holder now, and who was the master before and after. It exits with %d if calls
had no answer for longer than --limit. Ctrl-C ends the drill and has the cell serve
again at once; so does the death of chubbyctl.

There is one drill at a time in a cell, and none in the first ten seconds of a master.
Everybody can see that it is one: chubbyctl cell status and top, the logs
of the replicas, /readyz, and the metric chubby_drill. Drills are for operators of the
cell (/ls/CELL/acl/operators).`, exitUsage, exitOverLimit)
	group.Example = `  chubbyctl drill failover
  chubbyctl drill failover --yes --limit 2s
  chubbyctl drill outage 20s --yes --reason 'game day'`
	return group
}

// flags are those that every drill has.
func (o *drillOptions) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&o.yes, "yes", false, "do it; without, it is only said whom it would hit")
	flags.StringVar(&o.reason, "reason", "", "why, for the logs of the cell; the client of a session that is ended is told, too")
	flags.DurationVar(&o.limit, "limit", 0, fmt.Sprintf("exit with %d if calls had no answer for longer (default: no limit)", exitOverLimit))
	flags.StringVar(&o.dir, "dir", "", "the directory in which the drill has a file of its own (default: the root directory of the cell)")
}

func newDrillFailOverCommand(g *globals) *cobra.Command {
	o := &drillOptions{globals: g, kind: client.DrillFailOver}
	hard := false
	cmd := &cobra.Command{
		Use:   "failover [CELL]",
		Short: "Give the cell another master",
		Long: `failover has the master hand over to another replica, as 'chubbyctl cell transfer' does.

With --hard the master gives up and falls silent, as one does whose machine has lost
its network: the others have to find out by their election timeout, and elect. Its
process goes on, and is a replica again within a few seconds.`,
		Example: `  chubbyctl drill failover
  chubbyctl drill failover --yes --limit 500ms
  chubbyctl drill failover --hard --yes --limit 4s -o json`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if hard {
				o.kind = client.DrillHardFailOver
			}
			return o.start(cmd, args)
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&hard, "hard", false, "the master gives up without a word, and the others have to elect")
	cmd.Flags().StringVar(&o.to, "to", "", "the id of the replica that is to be the master")
	keepApart(cmd.Flags(), "hard", "with it the others elect whom they like", "to")
	zeroIsOff(cmd.Flags(), "to")
	return cmd
}

func newDrillOutageCommand(g *globals) *cobra.Command {
	o := &drillOptions{globals: g, kind: client.DrillOutage}
	cmd := &cobra.Command{
		Use:   "outage DURATION [CELL]",
		Short: "Leave the cell without a master for a while",
		Long: fmt.Sprintf(`outage leaves the cell without a master, so that nobody is served: to see who depends
on its being there all the time. It lasts DURATION, %v at most, which is the grace
period of clients: with the usual settings no session is lost. A lock whose lease and
lock-delay are over before that is given up by its holder, which cannot know that
nobody else has got it. Afterwards the cell is as after a fail-over: all leases and
lock-delays begin anew.

It ends by itself, with Ctrl-C, with chubbyctl's death, and when another replica
becomes the master. --limit counts the whole time without an answer, so it is longer
than DURATION.`, api.MaxOutage),
		Example: `  chubbyctl drill outage 20s
  chubbyctl drill outage 20s --yes --limit 25s --reason 'game day'`,
		Args: arguments(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			length, err := time.ParseDuration(args[0])
			switch {
			case err != nil:
				return usagef("%q is not a duration; want one as 20s", args[0])
			case length < minOutage || length > api.MaxOutage:
				return usagef("an outage of %v: want %v to %v", length, minOutage, api.MaxOutage)
			case o.limit > 0 && o.limit <= length:
				return usagef("--limit %v: calls have no answer for the outage itself, %v; want a longer limit", o.limit, length)
			}
			o.length = length
			return o.start(cmd, args[1:])
		},
	}
	o.flags(cmd)
	return cmd
}

// minOutage is the shortest outage: of a shorter one nothing would be seen that a fail-over does not show.
const minOutage = time.Second

func newDrillSessionLossCommand(g *globals) *cobra.Command {
	o := &drillOptions{globals: g, kind: client.DrillSessionLoss}
	cmd := &cobra.Command{
		Use:   "session-loss ID [CELL]",
		Short: "End a session, and see who gets its locks and whether its owner comes back",
		Long: `session-loss ends one session, as 'chubbyctl session end' does, and waits until its
locks are free: until its client has heard of it, or its lease and lock-delays are
over. It says who has got each of them and after how long, and whether a new session
of the same principal and host was opened. --limit is for how long the locks may be
without a new holder.`,
		Example: `  chubbyctl drill session-loss s42
  chubbyctl drill session-loss s42 --yes --reason 'does the standby take over?'`,
		Args: arguments(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.session, _, err = o.sessionOf(args[:1]); err != nil {
				return err
			}
			return o.start(cmd, args[1:])
		},
	}
	o.flags(cmd)
	return cmd
}

func newDrillSlowClientCommand(g *globals) *cobra.Command {
	o := &drillOptions{globals: g, kind: client.DrillSlowClient}
	cmd := &cobra.Command{
		Use:   "slow-client [CELL]",
		Short: "Have a client that caches a file fall silent, and see how long writers wait for it",
		Long: fmt.Sprintf(`slow-client opens a session that has a file in its cache and then falls silent for
--for: it reads and sends nothing, so it does not acknowledge that it has dropped the
file. Writers of the file wait for it, at most until its cache lease is over (%v);
how long they did is what it reports.

The file is one of its own, which a second session of its own writes. With --file it is
that one, which the drill reads and does not write: it reports how long writes of others
waited for it.`, api.CacheLease),
		Example: `  chubbyctl drill slow-client
  chubbyctl drill slow-client --yes --limit 3s
  chubbyctl drill slow-client --file /ls/local/config --for 30s --yes`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.length < minOutage || o.length > maxSilence:
				return usagef("--for %v: want %v to %v", o.length, minOutage, maxSilence)
			case o.file != "":
				p, err := o.parsePath(o.file)
				if err != nil {
					return err
				}
				if len(args) == 0 {
					args = []string{p.Cell()}
				}
				o.file = p.String()
			}
			return o.start(cmd, args)
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&o.file, "file", "", "a file of others that it caches, instead of one of its own")
	cmd.Flags().DurationVar(&o.length, "for", 5*time.Second, "for how long it falls silent")
	return cmd
}

// maxSilence is how long a slow client may be silent: its session is lost after its lease, so there is not much more to see.
const maxSilence = time.Minute

// start does the drill, or says what it would do.
func (o *drillOptions) start(cmd *cobra.Command, args []string) (err error) {
	if o.cell, err = o.cellOf(args); err != nil {
		return err
	}
	switch {
	case o.limit < 0:
		return usagef("--limit %v: want a positive duration", o.limit)
	case len(o.reason) > api.MaxReason:
		return usagef("--reason has %d bytes; at most %d are kept", len(o.reason), api.MaxReason)
	}
	if o.dir == "" {
		o.dir = "/" + api.Root + "/" + o.cell
	}
	if _, err := o.parsePath(o.dir); err != nil {
		return err
	}
	o.out, o.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
	if !o.yes {
		return o.rehearse(cmd.Context())
	}
	return o.perform(cmd.Context())
}

// rehearse says whom the drill would hit, and does nothing.
func (o *drillOptions) rehearse(ctx context.Context) error {
	var plan *drillPlan
	err := o.withCell(ctx, o.cell, func(ctx context.Context, c *client.Cell) (err error) {
		plan, err = o.plan(ctx, c)
		return err
	})
	if err != nil {
		return interruptOr(ctx, err)
	}
	if err := o.printPlan(plan); err != nil {
		return err
	}
	return usagef("drill %v: nothing was done; --yes does it", o.kind)
}

// perform does the drill, and says what it did.
func (o *drillOptions) perform(ctx context.Context) error {
	r := &drillReport{Drill: o.kind.String(), Done: true}
	err := o.run(ctx, r)
	if !r.begun {
		return interruptOr(ctx, err)
	}
	err = afterSteps(true, err)
	r.Interrupted = ctx.Err() != nil
	if printErr := o.printReport(r); printErr != nil {
		return errors.Join(err, printErr)
	}
	switch {
	case err != nil || r.Interrupted:
		if err == nil {
			err = context.Cause(ctx)
		}
		return interruptOr(ctx, err)
	case !r.WithinLimit:
		return &exitError{exitOverLimit, fmt.Errorf("drill %v: %s of %v is longer than --limit %v", o.kind, o.measured(), r.longest.Round(time.Millisecond), o.limit)}
	}
	return nil
}

// measured names what --limit is about.
func (o *drillOptions) measured() string {
	switch o.kind {
	case client.DrillSessionLoss:
		return "the longest time of a lock without a holder"
	case client.DrillSlowClient:
		return "the longest wait of a writer"
	}
	return "the longest time without an answer"
}
