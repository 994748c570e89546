package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// adviseOnCell adds advice to an error if nothing listens where the cell should be: start one, or name its
// address.
func (g *globals) adviseOnCell(err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	path, _ := api.ParsePath(e.Path) // the zero path if invalid
	advice := ""
	switch configured := client.ConfiguredCells(); {
	case errors.Is(err, client.NothingListens):
		advice = g.cellAdvice(path.Cell(), configured)
	case e.Code == api.WrongCell && len(g.servers) == 0 && len(configured) > 0 && !slices.Contains(configured, path.Cell()):
		advice = notConfigured(path.Cell(), configured)
	}
	if advice == "" {
		return err
	}
	if _, bare := err.(*api.Error); !bare && len(splitJoined(err)) == 1 { //nolint:errorlint // what the command says of it, and its exit code, stay
		return fmt.Errorf("%w; %s", err, advice)
	}
	told := *e
	told.Message, told.Err = e.Message+"; "+advice, nil
	return &told
}

// notConfigured names the configured cells in place of one that may be mistyped.
func notConfigured(cell string, configured []string) string {
	return fmt.Sprintf("%s is not configured; CHUBBY_CELLS and the file of cells name %s. A cell that is named nowhere is looked for on this machine, where 'chubbyd dev' starts one",
		cell, strings.Join(configured, ", "))
}

// cellAdvice advises about a cell whose servers refuse connections. configured are the cells in the user's
// configuration.
func (g *globals) cellAdvice(cell string, configured []string) string {
	switch {
	case len(g.servers) > 0:
		return "check --servers, or start the cell"
	case len(configured) == 0:
		return "start a cell on this machine with 'chubbyd dev', or say where it is with CHUBBY_CELLS or --servers"
	case slices.Contains(configured, cell):
		return "check CHUBBY_CELLS and the file of cells, or start the cell"
	}
	return notConfigured(cell, configured)
}
