package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// eachPath checks all paths, then calls f for each until it fails. The error names the remaining paths.
func (g *globals) eachPath(texts []string, f func(api.Path) error) error {
	paths := make([]api.Path, len(texts))
	for i, text := range texts {
		p, err := g.parsePath(text)
		if err != nil {
			return err
		}
		paths[i] = p
	}
	for i, p := range paths {
		if err := f(p); err != nil {
			return withRest(err, paths[i+1:])
		}
	}
	return nil
}

// parsePaths reads the paths of a command that is for one cell, each of which is there once.
func (g *globals) parsePaths(verb string, texts []string) (paths []api.Path, err error) {
	for _, text := range texts {
		p, err := g.parsePath(text)
		switch {
		case err != nil:
			return nil, err
		case slices.Contains(paths, p):
			return nil, usagef("%s: %v is there twice; name each path once", verb, p)
		case len(paths) > 0 && p.Cell() != paths[0].Cell():
			return nil, usagef("%s: %v and %v are in different cells; one command is for one cell", verb, paths[0], p)
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// changeEach is eachPath with an f that makes changes.
func (g *globals) changeEach(texts []string, f func(api.Path) error) error {
	done := false
	return g.eachPath(texts, func(p api.Path) error {
		err := afterSteps(done, f(p))
		done = true
		return err
	})
}

func withRest(err error, rest []api.Path) error {
	switch len(rest) {
	case 0:
		return err
	case 1:
		return fmt.Errorf("%w; not done: %s", err, quoted(rest[0].String()))
	}
	return fmt.Errorf("%w; not done: %s and %d more", err, quoted(rest[0].String()), len(rest)-1)
}

// pathOf returns the path of a command's optional argument, by default the default cell's root.
func (g *globals) pathOf(args []string) (api.Path, error) {
	if len(args) == 0 {
		return g.parsePath("/")
	}
	return g.parsePath(args[0])
}

// cellOf returns the cell of a command's optional argument, a name or a path in the cell; by default the
// default cell.
func (g *globals) cellOf(args []string) (string, error) {
	if len(args) == 0 {
		return g.defaultCell()
	}
	if api.ValidCell(args[0]) {
		return args[0], nil
	}
	p, err := api.ParsePath(args[0])
	if err != nil {
		return "", usagef("%q is not a cell's name: want letters, digits, '-', '_' and '.', as in %s", args[0], api.LocalCell)
	}
	if p.Cell() == api.LocalCell {
		return g.defaultCell()
	}
	return p.Cell(), nil
}

// parsePath reads a path. A path without /ls/CELL is in the default cell, as is /ls/local/...: "local" always
// means the default cell. A directory may end with a slash, as completion and ls write it.
func (g *globals) parsePath(text string) (api.Path, error) {
	path, err := api.ParsePath(strings.TrimSuffix(text, "/"))
	first, _, _ := strings.Cut(strings.TrimPrefix(text, "/"), "/")
	named := err == nil || text == "" || first == api.Root // an empty text is an unset variable
	if named && (err != nil || path.Cell() != api.LocalCell) {
		return path, err
	}
	below := strings.TrimSuffix(strings.TrimPrefix(text, "/"), "/")
	if named {
		below = strings.TrimPrefix(string(path.Name()), "/")
	}
	cell, err := g.defaultCell()
	if err != nil {
		return api.Path{}, err
	}
	return api.ParsePath(strings.TrimSuffix(fmt.Sprintf("/%s/%s/%s", api.Root, cell, below), "/"))
}

// quoted returns a word quoted for a shell, for commands to paste.
func quoted(word string) string {
	special := func(r rune) bool {
		return r < 128 && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:@%,=", r)
	}
	if !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

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

// listsOf returns a cell's directory of lists. The name has to be valid.
func listsOf(cell string) api.Path {
	return api.MustParsePath("/" + api.Root + "/" + cell + string(api.ACLDir))
}

func label(s api.Stat) string {
	if s.Kind == api.Directory {
		return s.Path.Base() + "/"
	}
	return s.Path.Base()
}

func abridged(line string) string {
	const limit = 40
	line = strings.TrimSuffix(line, "\n")
	if utf8.RuneCountInString(line) <= limit {
		return line
	}
	return string([]rune(line)[:limit]) + "…"
}

// listNameProblem returns why a list, a file in the directory of lists, cannot have a name; or "".
func listNameProblem(name string) string {
	switch {
	case name == "":
		return "it is empty"
	case len(name) > api.MaxACLName:
		return fmt.Sprintf("it has %d bytes, at most %d are allowed", len(name), api.MaxACLName)
	case strings.Contains(name, "/"):
		return "it has a slash in it"
	case strings.TrimSpace(name) != name:
		return "it begins or ends with a space"
	}
	if _, err := listsOf(api.LocalCell).Join(name); err != nil {
		return explanation(err)
	}
	return ""
}

func isList(p api.Path) bool { return !p.IsRoot() && p.Parent().Name() == api.ACLDir }
