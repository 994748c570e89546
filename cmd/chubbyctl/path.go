package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/chubbylock/chubby/api"
)

// eachPath runs f for every path, all of which are checked first.
func eachPath(texts []string, f func(api.Path) error) error {
	paths := make([]api.Path, len(texts))
	for i, text := range texts {
		p, err := parsePath(text)
		if err != nil {
			return err
		}
		paths[i] = p
	}
	for _, p := range paths {
		if err := f(p); err != nil {
			return err
		}
	}
	return nil
}

// parsePath reads a full path, and says what to write where it is not one. A
// directory may have a slash behind, as completion and ls write it.
func parsePath(text string) (api.Path, error) {
	path, err := api.ParsePath(strings.TrimSuffix(text, "/"))
	if err == nil {
		return path, nil
	}
	var e *api.Error
	if errors.As(err, &e) && !strings.HasPrefix(text, "/"+api.Root+"/") {
		local := "/" + api.Root + "/" + api.LocalCell + "/" + strings.Trim(text, "/")
		if _, localErr := api.ParsePath(local); localErr == nil {
			e.Message = fmt.Sprintf("a path names its cell; in the default cell this one is %s", local)
		}
	}
	return path, err
}

// quoted is a word as a shell reads it, for commands that are shown to be pasted.
func quoted(word string) string {
	special := func(r rune) bool {
		return r < 128 && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:@%,=", r)
	}
	if !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// rootOf is the root directory of the default cell, for commands whose path
// may be left out.
func rootOf(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return "/" + api.Root + "/" + api.LocalCell
}
