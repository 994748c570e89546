package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/chubbylock/chubby/api"
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
