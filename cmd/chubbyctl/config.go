package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func newConfigCommand(g *globals) *cobra.Command {
	group := newGroup("config", "Say where cells are, and choose the default cell",
		newUseCellCommand(g), newCurrentCellCommand(g), newCellsCommand(g), newAddCellCommand(g), newRemoveCellCommand(g))
	group.Long = `The default cell is that of paths which do not begin with /ls/CELL, of /ls/local/...,
and of commands that are told no cell. It is the first of these:
  --cell       of the command
  --servers    the cell of these servers, whatever its name is: CHUBBY_CELL may be
               another one, and does not count then
  CHUBBY_CELL  in the environment
  use-cell     what was chosen, in ~/.config/chubby/chubbyctl.yaml
  alone        the only one that CHUBBY_CELLS and the file of cells name
  local        the cell of that name

What several machines or users must agree on, as on the path of a lock, is better
written with its cell. A cell that is itself named local, beside another default one, is
reached with --cell local.`
	return group
}

func newUseCellCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "use-cell CELL",
		Short: "Choose the default cell",
		Long: `use-cell chooses the cell of paths that do not begin with /ls/CELL, and of commands that
are told no cell, for this user and from now on: it is kept in
~/.config/chubby/chubbyctl.yaml. --cell, --servers and CHUBBY_CELL count before it.

If there are cells in CHUBBY_CELLS and the file of cells, CELL has to be one of them, or
local, unless CHUBBY_DOMAIN names a domain in which it may be.`,
		Example: `  chubbyctl config use-cell main
  chubbyctl acquire nightly -- ./backup.sh     # /ls/main/nightly
  chubbyctl config use-cell local`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkUsable(args[0], client.ConfiguredCells()); err != nil {
				return err
			}
			path, err := writePreferences(preferences{Cell: args[0]})
			if err != nil {
				return fmt.Errorf("keep the default cell: %w", err)
			}
			if named := os.Getenv("CHUBBY_CELL"); named != "" && named != args[0] {
				g.notice(cmd.ErrOrStderr(), fmt.Sprintf("CHUBBY_CELL is set to %s, which counts before it", named))
			}
			return g.printChosenCell(cmd, chosenCell{args[0], path})
		},
	}
}

// checkUsable rejects a mistyped cell: others are configured, and it is not.
func checkUsable(cell string, configured []string) error {
	switch {
	case !api.ValidCell(cell):
		return usagef("%q is not a cell's name: want letters, digits, '-', '_' and '.'", cell)
	case cell == api.LocalCell, len(configured) == 0, slices.Contains(configured, cell), os.Getenv("CHUBBY_DOMAIN") != "":
		return nil
	}
	return usagef("%s is not configured; CHUBBY_CELLS and the file of cells name %s. Nothing was changed", cell, strings.Join(configured, ", "))
}

// printChosenCell prints only the name, for scripts; -v adds the reason.
func (g *globals) printChosenCell(cmd *cobra.Command, chosen chosenCell) error {
	if g.verbose && chosen.By != "" && !g.json() {
		term.Remark(cmd.ErrOrStderr(), "chosen by %s", chosen.By)
	}
	return g.output.Say(cmd.OutOrStdout(), chosen, "%s", chosen.Cell)
}

func newCurrentCellCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "current",
		Short:   "Print the default cell",
		Long:    "current prints the name of the default cell, without asking it; with -v and -o json also\nwhat has chosen it.",
		Example: "  chubbyctl config current\n  chubbyctl config current -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			chosen, err := g.chooseCell()
			if err != nil {
				return err
			}
			return g.printChosenCell(cmd, chosen)
		},
	}
}

type cellEntry struct {
	Cell    string   `json:"cell"`
	Default bool     `json:"default"`
	Servers []string `json:"servers"`
}

func newCellsCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "cells",
		Aliases: []string{"ls", "list"},
		Short:   "List the cells that are configured",
		Long: `cells lists the cells that CHUBBY_CELLS and the file of cells name, and the default cell,
with the servers of each, without asking any.`,
		Example: "  chubbyctl config cells",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := g.withTimeout(cmd.Context())
			defer cancel()
			cells, err := g.cellEntries(ctx)
			if err != nil {
				return err
			}
			return g.printCellEntries(cmd.OutOrStdout(), cells)
		},
	}
}

func (g *globals) cellEntries(ctx context.Context) ([]cellEntry, error) {
	chosen, err := g.defaultCell()
	if err != nil {
		return nil, err
	}
	names := append(client.ConfiguredCells(), chosen)
	slices.Sort(names)
	var cells []cellEntry
	for _, name := range slices.Compact(names) {
		one := cellEntry{name, name == chosen, g.servers}
		if !one.Default || len(g.servers) == 0 {
			if one.Servers, err = client.Servers(ctx, name); err != nil {
				return nil, err
			}
		}
		cells = append(cells, one)
	}
	return cells, nil
}

func (g *globals) printCellEntries(out io.Writer, cells []cellEntry) error {
	list := term.List[cellEntry, cellEntry]{
		Fields: term.Itself[cellEntry],
		Add: func(t *term.Table, c cellEntry) {
			mark := ""
			if c.Default {
				mark = "default"
			}
			t.Add(c.Cell, mark, strings.Join(c.Servers, ","))
		},
		Columns: []string{"CELL", "DEFAULT", "SERVERS"},
	}
	return list.PrintAll(out, g.output, cells)
}
