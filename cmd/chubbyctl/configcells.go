package main

import (
	"context"
	"errors"
	"fmt"
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

func newAddCellCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "add-cell CELL SERVER...",
		Short: "Say where a cell is",
		Long: `add-cell writes where a cell is into the file of cells, which all programs of this user
read: ~/.config/chubby/cells.yaml, or the one that CHUBBY_CONFIG names. --cacert, --cert,
--key and --token-file, if they are given, are written there, too. The cell is not asked.

A cell that the file has already is not changed: see remove-cell. If CHUBBY_CELLS names
the cell, that counts, and not the file.`,
		Example: `  chubbyctl config add-cell main h1:7421,h2:7421,h3:7421
  chubbyctl config add-cell main h1 h2 h3 \
    --cacert ca.pem --cert me.pem --key me.key
  chubbyctl config use-cell main`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.addCell(cmd, args[0], strings.Split(strings.Join(args[1:], ","), ","))
		},
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
	return g.printCellChange(cmd, "is in", cellChange{name, file.path})
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

func newRemoveCellCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "remove-cell CELL",
		Short: "Forget where a cell is",
		Long: `remove-cell removes a cell from the file of cells. Nothing is done to the cell. It stays
the default cell if use-cell has chosen it.`,
		Example: "  chubbyctl config remove-cell main",
		RunE: func(cmd *cobra.Command, args []string) error {
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
			return g.printCellChange(cmd, "is no longer in", cellChange{args[0], file.path})
		},
	}
}

type cellChange struct {
	Cell string `json:"cell"`
	File string `json:"file"`
}

func (g *globals) printCellChange(cmd *cobra.Command, done string, c cellChange) error {
	if names := strings.Split(";"+os.Getenv("CHUBBY_CELLS"), ";"); slices.ContainsFunc(names, func(entry string) bool { return strings.HasPrefix(strings.TrimSpace(entry), c.Cell+"=") }) {
		g.notice(cmd.ErrOrStderr(), fmt.Sprintf("CHUBBY_CELLS names %s, too, and counts before the file", c.Cell))
	}
	return g.output.Say(cmd.OutOrStdout(), c, "%s %s %s", c.Cell, done, term.Printable(c.File))
}
