package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// preferences are the user's choices for all runs of chubbyctl. They have their own file: every client reads
// the file of cells, and older clients accept only cells there.
type preferences struct {
	Cell string `yaml:"cell"`
}

// chosenCell is the cell of paths without a cell, and what chose it.
type chosenCell struct {
	Cell string `json:"cell"`
	By   string `json:"by"` // a flag, a variable or a file; "" for none
}

// preferencesFile returns the path of the preferences, below ~/.config on every system, like the file of cells.
func preferencesFile() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is nowhere to keep the default cell: %w; set CHUBBY_CELL instead", err)
	}
	return filepath.Join(home, ".config", "chubby", "chubbyctl.yaml"), nil
}

// readPreferences reads the preferences strictly. Without a file, nothing is chosen.
func readPreferences() (p preferences, path string, err error) {
	if path, err = preferencesFile(); err != nil {
		return p, "", nil //nolint:nilerr // without a home there is no file
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, path, nil
	}
	if err != nil {
		return p, path, usagef("the default cell cannot be read: %v; --cell and CHUBBY_CELL do not need the file", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err = decoder.Decode(&p); errors.Is(err, io.EOF) {
		err = nil // it is empty
	}
	if err == nil && p.Cell != "" && !api.ValidCell(p.Cell) {
		err = fmt.Errorf("%q is not a cell's name", p.Cell)
	}
	if err != nil {
		return preferences{}, path, usagef(`%s is malformed: want "cell: NAME"; 'chubbyctl config use-cell NAME' writes it anew: %v`, path, err)
	}
	return p, path, nil
}

// writePreferences replaces the preferences: after a crash the file is the old one or the new one.
func writePreferences(p preferences) (path string, err error) {
	if path, err = preferencesFile(); err != nil {
		return "", err
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return path, err
	}
	return path, replaceSettings(path, []byte("# Written by 'chubbyctl config use-cell'.\n"+string(text)), 0o644)
}

// chooseCell returns the cell of paths without one, from the first of: --cell; --servers, whose cell it is;
// CHUBBY_CELL; the preferences; the configuration, if it names exactly one cell. Otherwise it is local.
func (g *globals) chooseCell() (chosenCell, error) {
	if g.cell != "" {
		return chosenCell{g.cell, "--cell"}, nil
	}
	if len(g.servers) > 0 {
		return chosenCell{api.LocalCell, "--servers"}, nil
	}
	if named := os.Getenv("CHUBBY_CELL"); named != "" {
		if !api.ValidCell(named) {
			return chosenCell{}, usagef("CHUBBY_CELL %q is not a cell's name; where cells are is said by CHUBBY_CELLS", named)
		}
		return chosenCell{named, "CHUBBY_CELL"}, nil
	}
	p, path, err := readPreferences()
	if err != nil {
		return chosenCell{}, err
	}
	if p.Cell != "" {
		return chosenCell{p.Cell, path}, nil
	}
	if configured := client.ConfiguredCells(); len(configured) == 1 && api.ValidCell(configured[0]) {
		return chosenCell{configured[0], "being the only one that is configured"}, nil
	}
	return chosenCell{Cell: api.LocalCell}, nil
}

// defaultCell returns the name of the cell of paths without one.
func (g *globals) defaultCell() (string, error) {
	chosen, err := g.chooseCell()
	return chosen.Cell, err
}
