package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// validateAccessList refuses a list with a line that would not mean what it looks like. A
// cell takes any file for a list, and a line that it cannot read admits nobody, so that a
// typing error would shut people out.
func validateAccessList(list string) error {
	n := 0
	for line := range strings.Lines(list) {
		n++
		if fault := entryProblem(strings.TrimSuffix(line, "\n")); fault != "" {
			return usagef("line %d of the list, %q, %s. Nothing was sent", n, abridged(line), fault)
		}
	}
	return nil
}

// entryProblem says what is wrong with one line of a list; "" if nothing is.
func entryProblem(line string) string {
	included, isList := strings.CutPrefix(line, "@")
	switch {
	case !utf8.ValidString(line):
		return "is not valid UTF-8"
	case strings.HasSuffix(line, "\r"):
		return "ends with a carriage return: write lines that end with a newline only"
	case strings.ContainsFunc(line, term.IsInvisible):
		return "holds a control or invisible character"
	case strings.TrimSpace(line) != line:
		return "begins or ends with a space"
	case line == "" || line == "*" || line[0] == '#':
		return ""
	case isList:
		if fault := listNameProblem(included); fault != "" {
			return "includes what cannot be a list: " + fault
		}
	case len(line) > api.MaxPrincipal:
		return fmt.Sprintf("is %d bytes long; a principal has at most %d", len(line), api.MaxPrincipal)
	case strings.Contains(line, " #"):
		return "has a comment behind a principal: write comments on lines of their own"
	case strings.ContainsFunc(line, unicode.IsSpace):
		return "has a space in it: write one principal a line"
	}
	return ""
}

// listNameProblem says why a list, which is a file in the directory of lists, cannot have a
// name; "" if it can.
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

// admitsAny reports whether a list has an entry.
func admitsAny(list []byte) bool {
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return true
		}
	}
	return false
}

// abridged keeps a line in a message short.
func abridged(line string) string {
	const limit = 40
	line = strings.TrimSuffix(line, "\n")
	if utf8.RuneCountInString(line) <= limit {
		return line
	}
	return string([]rune(line)[:limit]) + "…"
}
