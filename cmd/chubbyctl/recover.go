package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/recovery"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/backup"
	"github.com/chubbylock/chubby/internal/backupstore"
)

func recoverVerb(g *globals, cmd *cobra.Command) {
	var to string
	var fromRemoved bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("to") && !backupstore.IsRemote(to) { // else it is checked when it is written
			switch _, err := os.Lstat(to); {
			case err == nil:
				return taken(to)
			case !errors.Is(err, fs.ErrNotExist):
				return err
			}
		}
		list, err := recovery.Look(cmd.Context(), args)
		if err != nil {
			return err
		}
		if err := printSurvivors(g.output, cmd.OutOrStdout(), list); err != nil {
			return err
		}
		freshest := list[0]
		adviseRecovery(g, list)
		if to == "" {
			return nil
		}
		if err := mustBeCurrent(freshest, fromRemoved); err != nil {
			return err
		}
		f, err := writeRecovered(cmd.Context(), g, freshest, to)
		if err != nil {
			return err
		}
		if err := printBackup(g.output, cmd.OutOrStdout(), to, f); err != nil {
			return err
		}
		term.Remark(g.stderr, "once it is restored, never start the replicas of before again. Two minutes after the last one ended, bootstrap cell %s on empty directories, and restore: chubbyctl cell restore %s %s --yes",
			freshest.Cell, term.Printable(to), freshest.Cell)
		return nil
	}
	cmd.Flags().StringVar(&to, "to", "", "the `file` for the backup; without it recover only looks")
	cmd.Flags().BoolVar(&fromRemoved, "from-removed", false, "make a backup also of a replica that was removed from the cell, as old as it is")
	needsFlag(cmd.Flags(), "to", "without which no backup is made", "from-removed")
}

// mustBeCurrent rejects a backup of a replica that was removed from its cell, unless the operator accepts that.
func mustBeCurrent(d recovery.Directory, fromRemoved bool) error {
	if !d.Removed || fromRemoved {
		return nil
	}
	return api.Errorf(api.InvalidArgument, "no backup is made of %s: replica %s was removed from cell %s, and has nothing of what the cell acknowledged after that. Name the directories of replicas that are its members (%s), and leave this one out; "+
		"if none of those is left, --from-removed makes a backup of what the cell was then", d.Path, d.Replica, d.Cell, strings.Join(d.Replicas, ", "))
}

func writeRecovered(ctx context.Context, g *globals, d recovery.Directory, to string) (f backupFields, err error) {
	show := term.NewProgress(func(index uint64) string { return fmt.Sprint(index >> 16) }, func(index uint64) {
		term.Remark(g.stderr, "read up to entry %d of %d", index, d.Index)
	})
	state, err := d.State(ctx, show.Update)
	show.Stop()
	if err != nil {
		return f, err
	}
	follower := backup.NewFollower()
	if err := writeNewFile(ctx, g, to, func(w io.Writer) error {
		return backup.Write(io.MultiWriter(w, follower), state, now().Unix(), d.Replica)
	}); err != nil {
		return f, err
	}
	f.About, f.Bytes, f.Checksum, err = follower.Finish()
	return f, err
}

func printSurvivors(as term.Format, out io.Writer, list []recovery.Directory) error {
	fresh := func(d recovery.Directory) bool { return d.Term == list[0].Term && d.Index == list[0].Index }
	show := term.List[recovery.Directory]{
		Fields: func(d recovery.Directory) term.Fields {
			return term.Fields{
				"directory", d.Path, "cell", d.Cell, "cell_id", d.CellID, "replica", d.Replica, "index", d.Index, "term", d.Term,
				"freshest", fresh(d), "replicas", append([]string{}, d.Replicas...), "removed", d.Removed,
			}
		},
		Add: func(t *term.Table, d recovery.Directory) {
			remark := ""
			switch {
			case len(list) > 1 && d.Path == list[0].Path:
				remark = "freshest"
			case len(list) > 1 && fresh(d):
				remark = "as fresh"
			}
			if d.Removed {
				remark = strings.TrimPrefix(remark+", removed", ", ")
			}
			t.Add(d.Path, d.Cell, d.Replica, d.Index, d.Term, remark)
		},
		Columns: []string{"DIRECTORY", "CELL", "REPLICA", "LAST ENTRY", "TERM", ""},
	}
	return show.PrintAll(out, as, list)
}

func adviseRecovery(g *globals, list []recovery.Directory) {
	if why := list[0].Contradicted; why != "" {
		term.Remark(g.stderr, "use this to look at it only, and make no cell of it while others are left: %s", why)
		return
	}
	all := list[0].Replicas
	var missing []string
	for _, id := range all {
		if !slices.ContainsFunc(list, func(d recovery.Directory) bool { return d.Replica == id }) {
			missing = append(missing, id)
		}
	}
	here := len(all) - len(missing)
	switch {
	case list[0].Removed:
		next := "leave it out"
		if len(missing) > 0 {
			next = "look for the directories of " + strings.Join(missing, ", ")
		}
		term.Remark(g.stderr, "replica %s was removed from cell %s: what it has ends there; %s", list[0].Replica, list[0].Cell, next)
	case here > len(all)/2:
		term.Remark(g.stderr, "%d of the %s of cell %s are here, a majority: start them, and nothing is lost", here, term.Counted(len(all), "replica"), list[0].Cell)
	case len(missing) > 0:
		term.Remark(g.stderr, "of the replicas of cell %s these are not here: %s. What only they had is lost; if one of them can be had, name it, too", list[0].Cell, strings.Join(missing, ", "))
	}
}
