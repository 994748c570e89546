package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/backup"
	"github.com/chubbylock/chubby/internal/backupstore"
)

type backupFields struct {
	backup.About
	Bytes    int64  `json:"bytes"`
	Checksum string `json:"checksum"`
}

func backupVerb(g *globals, cmd *cobra.Command, args []string) error {
	name := args[0]
	cell, err := g.cellOf(args[1:])
	if err != nil {
		return err
	}
	if name == "-" {
		f, err := writeBackup(cmd.Context(), g, cell, cmd.OutOrStdout())
		if err == nil {
			term.Remark(g.stderr, "%s", describeBackup(f))
		}
		return err
	}
	var f backupFields
	err = writeNewFile(cmd.Context(), g, name, func(w io.Writer) (err error) {
		f, err = writeBackup(cmd.Context(), g, cell, w)
		return err
	})
	if err != nil {
		return err
	}
	return printBackup(g.output, cmd.OutOrStdout(), name, f)
}

func taken(name string) error { return usagef("%s is there already: nothing is replaced", name) }

// fileAt finds the place of a file on the command line, and warns if others may read or change the way to it.
func fileAt(g *globals, name string) (backupstore.Place, string, error) {
	place, base, err := backupstore.FileAt(name)
	if err != nil {
		return nil, "", usagef("%v", err)
	}
	if text := backupstore.Warning(place); text != "" {
		term.Remark(g.stderr, "%s", text)
	}
	return place, base, nil
}

// writeNewFile creates a backup's file, which appears when it is complete.
func writeNewFile(ctx context.Context, g *globals, name string, write func(io.Writer) error) error {
	place, base, err := fileAt(g, name)
	if err != nil {
		return err
	}
	err = place.Create(ctx, base, write)
	if errors.Is(err, fs.ErrExist) {
		return taken(name)
	}
	return err
}

// writeBackup takes a backup, each part within --timeout, and checks its sum.
func writeBackup(ctx context.Context, g *globals, cell string, w io.Writer) (f backupFields, err error) {
	follower := backup.NewFollower()
	c, err := client.Dial(ctx, g.config(cell))
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ctx, step, cancel := g.withSteps(ctx)
	defer cancel()
	show := term.NewProgress(func(n int64) string { return fmt.Sprint(n >> 24) }, func(n int64) { term.Remark(g.stderr, "%s so far", term.RoughSize(n)) })
	defer show.Stop()
	var n int64
	err = c.Backup(ctx, writerFunc(func(p []byte) (int, error) {
		step()
		n += int64(len(p))
		show.Update(n)
		_, _ = follower.Write(p) // never fails
		return w.Write(p)
	}))
	if err != nil {
		return f, err
	}
	f.About, f.Bytes, f.Checksum, err = follower.Finish()
	return f, err
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func printBackup(as term.Format, out io.Writer, name string, f backupFields) error {
	return as.Say(out, f, "%s: %s", name, describeBackup(f))
}

func describeBackup(f backupFields) string {
	of := ""
	if f.Recovered != "" {
		of = ", recovered from replica " + f.Recovered
	}
	return fmt.Sprintf("cell %s (%.12s)%s at entry %d, of %s: %d nodes with %s, %d sessions, %d locks held; %s, sha256 %s",
		f.Cell, f.CellID, of, f.Index, time.Unix(f.TakenUnix, 0).UTC().Format(time.DateTime), f.Nodes, term.RoughSize(f.Contents), f.Sessions, f.Locks, term.RoughSize(f.Bytes), f.Checksum)
}

// readBackup reads a whole backup; - is standard input. Until that ends, one interrupt ends the process.
func readBackup(g *globals, cmd *cobra.Command, name string) (*backup.Backup, error) {
	if in := cmd.InOrStdin(); name == "-" {
		if term.IsTerminal(in) {
			return nil, usagef("- is a backup from standard input, as in 'gunzip <FILE | %s -'", cmd.CommandPath())
		}
		b, err := untilInterrupt(cmd.Context(), func() (*backup.Backup, error) { return backup.Read(in) })
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return b, nil
	}
	place, base, err := fileAt(g, name)
	if err != nil {
		return nil, err
	}
	file, err := place.Open(cmd.Context(), base)
	if err != nil {
		return nil, err
	}
	defer file.Close() // only read
	b, err := backup.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

func backupVerifyVerb(g *globals, cmd *cobra.Command, args []string) error {
	b, err := readBackup(g, cmd, args[0])
	if err != nil {
		return err
	}
	return printBackup(g.output, cmd.OutOrStdout(), args[0], backupFields{b.About, b.Bytes, b.Checksum})
}

func backupShowVerb(g *globals, cmd *cobra.Command) {
	cmd.ValidArgsFunction = cobra.NoFileCompletions // PATH is in the backup, not in the cell
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b, err := readBackup(g, cmd, args[0])
		if err != nil {
			return err
		}
		var below api.Name
		if len(args) == 2 {
			p, err := api.ParsePath(args[1])
			if err != nil {
				return err
			}
			below = p.Name()
			node, ok := b.State.Tree.Get(below)
			switch {
			case !ok || p.Cell() != b.Cell:
				return &api.Error{Code: api.NotFound, Op: "show", Path: args[1], Message: "it is not in this backup, which is one of cell " + b.Cell}
			case node.Kind == api.File:
				_, err := cmd.OutOrStdout().Write(node.Contents)
				return err
			}
		}
		return printBackupNodes(g.output, cmd.OutOrStdout(), b, below)
	}
}

func printBackupNodes(as term.Format, out io.Writer, b *backup.Backup, below api.Name) error {
	type row struct {
		path, kind, lock string // lock: "" if free
		size             int
		holders          []string
	}
	list := term.List[row]{
		Fields: func(r row) term.Fields {
			return term.Fields{"path", r.path, "kind", r.kind, "size", r.size, "lock", r.lock, "holders", r.holders}
		},
		Add:     func(t *term.Table, r row) { t.Add(r.path, r.kind, r.size, r.lock, strings.Join(r.holders, " ")) },
		Columns: []string{"PATH", "KIND", "BYTES", "LOCK", "HOLDERS"},
	}
	return list.Print(out, as, func(yield func(row, error) bool) {
		for _, node := range b.State.Tree.Below(below, nil) {
			path, err := node.Name.In(b.Cell)
			one := row{path: path.String(), kind: node.Kind.String(), size: len(node.Contents), holders: []string{}}
			if len(node.Holders) > 0 {
				one.lock = node.Mode.String()
			}
			for _, h := range node.Holders {
				if s, ok := b.State.Sessions.Get(h.Session); ok {
					one.holders = append(one.holders, s.Principal)
				}
			}
			if !yield(one, err) || err != nil {
				return
			}
		}
	})
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
			return g.withCellOf(cmd, args, func(ctx context.Context, c *client.Cell) error {
				if err := client.GiveUpRestore(ctx, c); err != nil {
					return err
				}
				return g.output.Say(cmd.OutOrStdout(), map[string]bool{"given_up": true}, "the restore is given up: the cell has what it had, and sessions can begin")
			})
		case len(args) == 0:
			return usagef("which backup? name its FILE, or give up the restore that is under way with --give-up")
		}
		cell, err := g.cellOf(args[1:])
		if err != nil {
			return err
		}
		return restoreCell(g, cmd, args[0], cell, o)
	}
	cmd.Flags().BoolVar(&o.yes, "yes", false, "replace everything in the cell")
	cmd.Flags().BoolVar(&o.giveUp, "give-up", false, "give up the restore that is under way")
	keepApart(cmd.Flags(), "give-up", "nothing is restored", "yes", "above", "reason")
	cmd.Flags().Uint64Var(&o.above, "above", 0, "a `token` that is known to have been issued after the backup, by a guard for example")
	cmd.Flags().StringVar(&o.why, "reason", "the cell is restored from a backup", "`text` for the clients whose sessions are ended")
}

// oldLeases is how long a client of a lost cell may rely on a lock: the longest lease and the longest
// lock-delay.
const oldLeases = api.MaxLease + api.MaxLockDelay

func restoreCell(g *globals, cmd *cobra.Command, name, cell string, o restoreOptions) error {
	b, err := readBackup(g, cmd, name)
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
	show := term.NewProgress(func(p client.RestoreProgress) string { return fmt.Sprint(p.Parts/64, p.Sealed, p.Sessions) }, func(p client.RestoreProgress) {
		switch {
		case p.Sealed:
			term.Remark(g.stderr, "waiting for %s to end: until their clients have let go, or their leases are over", term.Counted(p.Sessions, "session"))
		case p.Parts > 0:
			term.Remark(g.stderr, "%s of the backup sent", term.Counted(p.Parts, "part"))
		}
	})
	is, err := client.Restore(ctx, c, source, func(p client.RestoreProgress) {
		begun = true
		step()
		show.Update(p)
	})
	show.Stop()
	if mayBeDone(err) {
		g.notice(g.stderr, "the cell has what it had, or it was restored: 'chubbyctl cell status' says so")
	}
	if err != nil {
		return afterSteps(begun, err) // sessions may have ended
	}
	ended := int(max(before.Sessions, 1) - 1)
	f := term.Fields{
		"cell", before.Cell, "cell_id", is.CellID, "counter", is.Counter, "index", b.Index, "nodes", b.Nodes,
		"bytes", b.Bytes, "checksum", b.Checksum, "sessions_ended", ended,
	}
	if before.CellID != is.CellID {
		term.Remark(g.stderr, "the tokens of the cell are of the id %.12s from now on, as in the backup; they were of %.12s", is.CellID, before.CellID)
	}
	if id, err := client.Identify(ctx, c.Cell()); err == nil && id.Principal != "" && lacksOperators(ctx, g, cell) {
		g.notice(g.stderr, noOperators(cell)) // the backup has none, and replaced everything
	}
	return g.output.Say(cmd.OutOrStdout(), f, "cell %s is restored from %s, the backup of cell %s of %s: %d nodes; %s ended; tokens go on above %d",
		before.Cell, term.Printable(name), b.Cell, taken, b.Nodes, term.Counted(ended, "session"), is.Counter)
}
