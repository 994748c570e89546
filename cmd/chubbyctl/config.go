package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func useCellVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
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

func currentCellVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chosen, err := g.chooseCell()
		if err != nil {
			return err
		}
		return g.printChosenCell(cmd, chosen)
	}
}

type cellEntry struct {
	Cell    string   `json:"cell"`
	Default bool     `json:"default"`
	Servers []string `json:"servers"`
}

func cellsVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := g.withTimeout(cmd.Context())
		defer cancel()
		cells, err := g.cellEntries(ctx)
		if err != nil {
			return err
		}
		return g.printCellEntries(cmd.OutOrStdout(), cells)
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

func addCellVerb(g *globals, cmd *cobra.Command) {
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return g.addCell(cmd, args[0], strings.Split(strings.Join(args[1:], ","), ","))
	}
}

// addCell adds a cell to the file of cells, if clients could use the entry.
func (g *globals) addCell(cmd *cobra.Command, name string, servers []string) error {
	if len(g.servers) > 0 {
		return usagef("the servers of %s follow its name; --servers is for commands that ask a cell", name)
	}
	cell := configuredCell{Servers: servers}
	var err error
	for kept, given := range map[*string]string{&cell.CA: g.tls.CA, &cell.Cert: g.tls.Cert, &cell.Key: g.tls.Key, &cell.Token: g.tokenFile} {
		if given != "" {
			if *kept, err = filepath.Abs(given); err != nil {
				return err
			}
		}
	}
	if err := g.checkCell(cmd.Context(), name, cell); err != nil {
		return err
	}
	file, err := readCellsFile()
	if err != nil {
		return err
	}
	switch had, found, err := file.get(name); {
	case err != nil:
		return err
	case found && reflect.DeepEqual(had, cell):
	case found:
		return usagef("%s is in %s already, with the servers %s. Nothing was changed; 'chubbyctl config remove-cell %s' removes it", name, file.path, strings.Join(had.Servers, ","), name)
	default:
		if err := file.add(name, cell); err != nil {
			return fmt.Errorf("add %s to %s: %w", name, file.path, err)
		}
	}
	return g.printCellChange(cmd, "is in", name, file.path)
}

// checkCell rejects an entry that no client could use, without a call.
func (g *globals) checkCell(ctx context.Context, name string, cell configuredCell) error {
	if !api.ValidCell(name) {
		return usagef("%q is not a cell's name: want letters, digits, '-', '_' and '.'", name)
	}
	if known := cell.Cert != "" || cell.Token != ""; known != (cell.CA != "") {
		return usagef("--cacert, and --cert with --key or else --token-file, are needed together")
	}
	cfg := g.config(name)
	cfg.Servers = cell.Servers
	c, err := client.Dial(ctx, cfg)
	if errors.Is(err, api.InvalidArgument) {
		return usagef("%v. Nothing was changed", err)
	}
	if err != nil {
		return err
	}
	return c.Close()
}

func removeCellVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := readCellsFile()
		if err != nil {
			return err
		}
		at := file.find(args[0])
		if at < 0 {
			return usagef("%s is not in %s; see 'chubbyctl config cells'", args[0], file.path)
		}
		if err := file.remove(at); err != nil {
			return fmt.Errorf("remove %s from %s: %w", args[0], file.path, err)
		}
		return g.printCellChange(cmd, "is no longer in", args[0], file.path)
	}
}

func (g *globals) printCellChange(cmd *cobra.Command, done, cell, file string) error {
	if names := strings.Split(";"+os.Getenv("CHUBBY_CELLS"), ";"); slices.ContainsFunc(names, func(entry string) bool { return strings.HasPrefix(strings.TrimSpace(entry), cell+"=") }) {
		g.notice(cmd.ErrOrStderr(), fmt.Sprintf("CHUBBY_CELLS names %s, too, and counts before the file", cell))
	}
	return g.output.Say(cmd.OutOrStdout(), map[string]string{"cell": cell, "file": file}, "%s %s %s", cell, done, term.Printable(file))
}
