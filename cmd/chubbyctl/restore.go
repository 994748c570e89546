package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/backup"
)

type restoredFields struct {
	Cell          string     `json:"cell"`
	CellID        api.CellID `json:"cell_id"` // of tokens issued from now on
	Counter       uint64     `json:"counter"` // below all of them
	Index         uint64     `json:"index"`   // of the last entry in the backup
	Nodes         int        `json:"nodes"`
	Bytes         int64      `json:"bytes"` // of the backup
	Checksum      string     `json:"checksum"`
	SessionsEnded int        `json:"sessions_ended"`
}

type restoreOptions struct {
	yes    bool
	giveUp bool
	above  uint64
	why    string
}

func restoreVerb(g *globals, cmd *cobra.Command) {
	var o restoreOptions
	cmd.Args = arguments(cobra.MaximumNArgs(2))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.giveUp && len(args) > 1:
			return usagef("--give-up takes no FILE: it ends the restore that is under way")
		case o.giveUp:
			return g.giveUpRestore(cmd, args)
		case len(args) == 0:
			return usagef("which backup? name its FILE, or give up the restore that is under way with --give-up")
		}
		cell, err := g.cellOf(args[1:])
		if err != nil {
			return err
		}
		return g.restore(cmd, args[0], cell, o)
	}
	cmd.Flags().BoolVar(&o.yes, "yes", false, "replace everything in the cell")
	cmd.Flags().BoolVar(&o.giveUp, "give-up", false, "give up the restore that is under way")
	keepApart(cmd.Flags(), "give-up", "nothing is restored", "yes", "above", "reason")
	cmd.Flags().Uint64Var(&o.above, "above", 0, "a `token` that is known to have been issued after the backup, by a guard for example")
	cmd.Flags().StringVar(&o.why, "reason", "the cell is restored from a backup", "`text` for the clients whose sessions are ended")
}

func (g *globals) giveUpRestore(cmd *cobra.Command, args []string) error {
	return g.withCellOf(cmd, args, func(ctx context.Context, c *client.Cell) error {
		if err := client.GiveUpRestore(ctx, c); err != nil {
			return err
		}
		return g.output.Say(cmd.OutOrStdout(), map[string]bool{"given_up": true}, "the restore is given up: the cell has what it had, and sessions can begin")
	})
}

// oldLeases is how long a client of a lost cell may rely on a lock: the longest lease and the longest
// lock-delay.
const oldLeases = api.MaxLease + api.MaxLockDelay

func (g *globals) restore(cmd *cobra.Command, name, cell string, o restoreOptions) error {
	b, err := g.readBackup(cmd, name)
	if err != nil {
		return err
	}
	taken := time.Unix(b.TakenUnix, 0).UTC().Format(time.DateTime)
	if !o.yes {
		return usagef("this replaces everything in cell %s by the backup of cell %s of %s, with %d nodes, and ends all sessions; --yes does it", cell, b.Cell, taken, b.Nodes)
	}
	ctx, step, cancel := g.withSteps(cmd.Context())
	defer cancel()
	c, err := client.New(ctx, g.config(cell))
	if err != nil {
		return err
	}
	defer g.closeSession(ctx, c)
	before, err := c.Cell().Status(ctx)
	if err != nil {
		return err
	}
	if left := oldLeases - since(b.TakenUnix); before.CellID != b.CellID && b.Recovered == "" && left > 0 {
		g.notice(g.stderr, fmt.Sprintf("the cell of the backup ran until %s ago or later: for two minutes after its end, so for %s at least, a client of it may rely on a lock that this cell grants anew",
			term.Roughly(oldLeases-left), term.Roughly(left)))
	}
	source := client.RestoreBackup{
		Cell: b.Cell, CellID: b.CellID, Level: b.Level, Counter: max(b.Counter, o.above), Nodes: b.Nodes, Why: o.why,
		Index: b.Index, TakenUnix: b.TakenUnix, Recovered: b.Recovered,
	}
	source.Parts, source.Quotas = backup.Parts(b.State)
	begun := false
	is, err := g.followRestore(ctx, c, source, func() { begun = true; step() })
	if mayBeDone(err) {
		g.notice(g.stderr, "the cell has what it had, or it was restored: 'chubbyctl cell status' says so")
	}
	if err != nil {
		return afterSteps(begun, err) // sessions may have ended
	}
	f := restoredFields{
		Cell: before.Cell, CellID: is.CellID, Counter: is.Counter, Index: b.Index, Nodes: b.Nodes, Bytes: b.Bytes, Checksum: b.Checksum,
		SessionsEnded: int(max(before.Sessions, 1) - 1),
	}
	if before.CellID != is.CellID {
		term.Remark(g.stderr, "the tokens of the cell are of the id %.12s from now on, as in the backup; they were of %.12s", is.CellID, before.CellID)
	}
	if id, err := client.Identify(ctx, c.Cell()); err == nil && id.Principal != "" && g.lacksOperators(ctx, cell) {
		g.notice(g.stderr, noOperators(cell)) // the backup has none, and replaced everything
	}
	return g.output.Say(cmd.OutOrStdout(), f, "cell %s is restored from %s, the backup of cell %s of %s: %d nodes; %s ended; tokens go on above %d",
		f.Cell, term.Printable(name), b.Cell, taken, f.Nodes, term.Counted(f.SessionsEnded, "session"), f.Counter)
}

// followRestore restores a backup and shows the progress. It calls stepped after each step.
func (g *globals) followRestore(ctx context.Context, c *client.Client, b client.RestoreBackup, stepped func()) (client.Restored, error) {
	show := term.NewProgress(func(p client.RestoreProgress) string { return fmt.Sprint(p.Parts/64, p.Sealed, p.Sessions) }, func(p client.RestoreProgress) {
		switch {
		case p.Sealed:
			term.Remark(g.stderr, "waiting for %s to end: until their clients have let go, or their leases are over", term.Counted(p.Sessions, "session"))
		case p.Parts > 0:
			term.Remark(g.stderr, "%s of the backup sent", term.Counted(p.Parts, "part"))
		}
	})
	defer show.Stop()
	return client.Restore(ctx, c, b, func(p client.RestoreProgress) {
		stepped()
		show.Update(p)
	})
}
