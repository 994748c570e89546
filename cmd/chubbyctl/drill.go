package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// The kinds of drills.
const (
	drillFailOver     = "failover"
	drillHardFailOver = "hard-failover"
	drillOutage       = "outage"
	drillSessionLoss  = "session-loss"
	drillSlowClient   = "slow-client"
)

// minDrill is the minimum of an outage or silence. After maxSilence, the session would be lost.
const (
	minDrill   = time.Second
	maxSilence = time.Minute
)

// drillOptions are one drill. To the cell it is a client: it asks for another master, or for none for a while,
// ends a session, or stops answering.
type drillOptions struct {
	*globals
	yes    bool
	reason string
	limit  time.Duration // of the longest silence; 0: none
	dir    string        // of the drill's own file

	kind, cell string
	to         string          // of a fail-over: the next master
	length     time.Duration   // of an outage, or a slow client's silence
	session    api.SessionID   // to end
	file       string          // cached by the slow client; "": the drill's own
	own        []api.SessionID // the drill's sessions, not counted

	out io.Writer
}

func newDrillCommand(g *globals) *cobra.Command {
	group := newGroup("drill", "Try a failure on a cell in use: see first whom it would hit, and then what it did",
		newDrillFailOverCommand(g), newDrillOutageCommand(g), newDrillSessionLossCommand(g), newDrillSlowClientCommand(g))
	group.Long = fmt.Sprintf(`drill causes a failure at a moment of your choice. Without --yes it does nothing, says
whom the drill would hit, and exits with %d: who holds locks of which no sequencer was
shown to the cell, whose lease and lock-delay are too short for it, and who waits in
queues.

With --yes it does it, and says how long calls had no answer, measured by a session of
its own that writes a file all the time, which sessions were lost, and which locks have
another holder now. It exits with %d if calls had no answer for longer than --limit.
Ctrl-C and the death of chubbyctl end a drill at once; the cell serves again after an
election.

Fail-overs and outages are for operators of the cell (/ls/CELL/acl/operators).`, exitUsage, exitOverLimit)
	group.Example = `  chubbyctl drill failover
  chubbyctl drill failover --yes --limit 2s
  chubbyctl drill outage 20s --yes --reason 'game day'`
	return group
}

// command completes a drill's command. parse reads the arguments before the cell, and returns the rest.
func (o *drillOptions) command(cmd *cobra.Command, parse func(args []string) (rest []string, err error)) *cobra.Command {
	flags := cmd.Flags()
	flags.BoolVar(&o.yes, "yes", false, "do it; without, it is only said whom it would hit")
	flags.StringVar(&o.reason, "reason", "", "why, for the logs of the cell; the client of a session that is ended is told, too")
	flags.DurationVar(&o.limit, "limit", 0, fmt.Sprintf("exit with %d if calls had no answer for longer (default: no limit)", exitOverLimit))
	flags.StringVar(&o.dir, "dir", "", "the directory in which the drill has a file of its own (default: the root directory of the cell)")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.out = cmd.OutOrStdout()
		if args, err = parse(args); err != nil {
			return err
		}
		if o.cell, err = o.cellOf(args); err != nil {
			return err
		}
		switch {
		case o.limit < 0:
			return usagef("--limit %v: want a positive duration", o.limit)
		case len(o.reason) > api.MaxReason:
			return usagef("--reason has %d bytes; at most %d are kept", len(o.reason), api.MaxReason)
		case o.dir == "":
			o.dir = "/" + api.Root + "/" + o.cell
		}
		if _, err := o.parsePath(o.dir); err != nil {
			return err
		}
		if !o.yes {
			return o.rehearse(cmd.Context())
		}
		return o.perform(cmd.Context())
	}
	return cmd
}

func newDrillFailOverCommand(g *globals) *cobra.Command {
	o, hard := &drillOptions{globals: g, kind: drillFailOver}, false
	cmd := o.command(&cobra.Command{
		Use:   "failover [CELL]",
		Short: "Give the cell another master",
		Long: `failover has the master hand over to another replica, as 'chubbyctl cell transfer' does.

With --hard the master gives up and falls silent, as one does whose machine has lost its
network: the others have to find out by their election timeout, and elect.`,
		Example: `  chubbyctl drill failover
  chubbyctl drill failover --yes --limit 500ms
  chubbyctl drill failover --hard --yes --limit 4s -o json`,
	}, func(args []string) ([]string, error) {
		if hard {
			o.kind = drillHardFailOver
		}
		return args, nil
	})
	cmd.Flags().BoolVar(&hard, "hard", false, "the master gives up without a word, and the others have to elect")
	cmd.Flags().StringVar(&o.to, "to", "", "the id of the replica that is to be the master")
	keepApart(cmd.Flags(), "hard", "with it the others elect whom they like", "to")
	zeroIsOff(cmd.Flags(), "to")
	return cmd
}

func newDrillOutageCommand(g *globals) *cobra.Command {
	o := &drillOptions{globals: g, kind: drillOutage}
	return o.command(&cobra.Command{
		Use:   "outage DURATION [CELL]",
		Short: "Leave the cell without a master for a while",
		Long: fmt.Sprintf(`outage leaves the cell without a master, so that nobody is served: to see who depends
on its being there all the time. It lasts DURATION, %v at most, which is the grace
period of clients: with the usual settings no session is lost. A lock whose lease and
lock-delay are over before that is given up by its holder. Afterwards the cell is as
after a fail-over: all leases and lock-delays begin anew. --limit counts the whole
time without an answer, so it is longer than DURATION.`, api.MaxOutage),
		Example: `  chubbyctl drill outage 20s
  chubbyctl drill outage 20s --yes --limit 25s --reason 'game day'`,
	}, func(args []string) (rest []string, err error) {
		switch o.length, err = time.ParseDuration(args[0]); {
		case err != nil:
			return nil, usagef("%q is not a duration; want one as 20s", args[0])
		case o.length < minDrill || o.length > api.MaxOutage:
			return nil, usagef("an outage of %v: want %v to %v", o.length, minDrill, api.MaxOutage)
		case o.limit > 0 && o.limit <= o.length:
			return nil, usagef("--limit %v: calls have no answer for the outage itself, %v; want a longer limit", o.limit, o.length)
		}
		return args[1:], nil
	})
}

func newDrillSessionLossCommand(g *globals) *cobra.Command {
	o := &drillOptions{globals: g, kind: drillSessionLoss}
	return o.command(&cobra.Command{
		Use:   "session-loss ID [CELL]",
		Short: "End a session, and see who gets its locks and whether its owner comes back",
		Long: `session-loss ends one session, as 'chubbyctl session end' does. It says who has got each
of its locks and after how long, and whether a new session of the same principal and
host was opened. --limit is for how long a lock may be without a new holder.`,
		Example: `  chubbyctl drill session-loss s42
  chubbyctl drill session-loss s42 --yes --reason 'does the standby take over?'`,
	}, func(args []string) (rest []string, err error) {
		o.session, _, err = o.sessionOf(args[:1])
		return args[1:], err
	})
}

func newDrillSlowClientCommand(g *globals) *cobra.Command {
	o := &drillOptions{globals: g, kind: drillSlowClient}
	cmd := o.command(&cobra.Command{
		Use:   "slow-client [CELL]",
		Short: "Have a client that caches a file fall silent, and see how long writers wait for it",
		Long: fmt.Sprintf(`slow-client opens a session that has a file in its cache and then falls silent for
--for: it neither reads nor sends, so it does not acknowledge that it has dropped the
file. Writers of the file wait for it, at most until its cache lease is over (%v);
--limit is for how long. The file is the one that the drill writes itself; with --file
the drill does not write it, and reports how long writes of others waited.`, api.CacheLease),
		Example: `  chubbyctl drill slow-client
  chubbyctl drill slow-client --yes --limit 3s
  chubbyctl drill slow-client --file /ls/local/config --for 30s --yes`,
	}, func(args []string) ([]string, error) {
		if o.length < minDrill || o.length > maxSilence {
			return nil, usagef("--for %v: want %v to %v", o.length, minDrill, maxSilence)
		}
		if o.file != "" {
			p, err := o.parsePath(o.file)
			if err != nil {
				return nil, err
			}
			if o.file = p.String(); len(args) == 0 {
				args = []string{p.Cell()}
			}
		}
		return args, nil
	})
	cmd.Flags().StringVar(&o.file, "file", "", "a file of others that it caches, instead of one of its own")
	cmd.Flags().DurationVar(&o.length, "for", 5*time.Second, "for how long it falls silent")
	return cmd
}

func (o *drillOptions) rehearse(ctx context.Context) error {
	err := o.withCell(ctx, o.cell, func(ctx context.Context, c *client.Cell) error {
		view, err := o.look(ctx, c)
		if err == nil && o.session != 0 {
			_, err = findSession(ctx, c, o.cell, o.session)
		}
		if err != nil {
			return err
		}
		return o.printPlan(o.plan(view))
	})
	return interruptOr(ctx, cmp.Or(err, usagef("drill %v: nothing was done; --yes does it", o.kind)))
}

func (o *drillOptions) perform(ctx context.Context) error {
	r, err := o.run(ctx)
	if r == nil {
		return interruptOr(ctx, err)
	}
	r.Interrupted = hasEnded(ctx)
	if printErr := o.printReport(r); printErr != nil {
		return errors.Join(afterSteps(true, err), printErr)
	}
	switch what, longest := r.longest(); {
	case r.Interrupted:
		return interruptOr(ctx, cmp.Or(afterSteps(true, err), context.Cause(ctx)))
	case err != nil:
		return afterSteps(true, err)
	case !r.WithinLimit:
		return &exitError{exitOverLimit, fmt.Errorf("drill %v: %s of %.3fs is longer than --limit %v", o.kind, what, longest, o.limit)}
	}
	return nil
}
