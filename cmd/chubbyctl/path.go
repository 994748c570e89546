package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/chubbylock/chubby/api"
)

// eachPath checks all paths, and then calls f for each.
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

// parsePath reads a full path. If the text is not one, the error says what to write. A
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

// quoted returns a word as a shell reads it, for commands that users may paste.
func quoted(word string) string {
	special := func(r rune) bool {
		return r < 128 && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:@%,=", r)
	}
	if !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// rootOf returns the first argument, or the root directory of the default cell if there is
// none.
func rootOf(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return "/" + api.Root + "/" + api.LocalCell
}
