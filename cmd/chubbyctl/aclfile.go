package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// listPath returns the path of a list: text is a NAME in the default cell, or the path of a file in any cell's
// directory of lists.
func (g *globals) listPath(text string) (api.Path, error) {
	if strings.HasPrefix(text, "/") {
		p, err := g.parsePath(text)
		if err == nil && p.Parent().Name() != api.ACLDir {
			err = usagef("%v is no access control list: those of its cell are in %v", p, listsOf(p.Cell()))
		}
		return p, err
	}
	if fault := listNameProblem(text); fault != "" {
		return api.Path{}, usagef("%q cannot be the name of a list: %s", abridged(text), fault)
	}
	cell, err := g.defaultCell()
	if err != nil {
		return api.Path{}, err
	}
	return listsOf(cell).Join(text)
}

func aclFileLsVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = g.onCell(func(cmd *cobra.Command, cell string) error {
		lists, err := readNode(cmd.Context(), g, listsOf(cell), (*client.Client).List)
		if err != nil {
			return err
		}
		return g.printList(cmd.OutOrStdout(), lists, false)
	})
}

func aclFileCatVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := g.listPath(args[0])
		if err != nil {
			return err
		}
		return g.printFile(cmd, p)
	}
}

func aclFileRmVerb(g *globals, cmd *cobra.Command) {
	o := &consent{}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := g.listPath(args[0])
		if err != nil {
			return err
		}
		return g.removeNode(cmd, p, o, nil)
	}
	o.flag(cmd)
}

func aclFilePutVerb(g *globals, cmd *cobra.Command) {
	o := &consent{}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := g.listPath(args[0])
		if err != nil {
			return err
		}
		list, err := g.readAccessList(cmd, args[1:], p)
		if err != nil {
			return err
		}
		if !admitsAny(list) {
			g.notice(cmd.ErrOrStderr(), fmt.Sprintf("the list %s has no entry: it admits nobody", p.Base()))
		}
		put := &putOptions{globals: g, consent: *o}
		return put.writeFile(cmd, p, list)
	}
	o.flag(cmd)
}

// readAccessList reads a list from the command line or standard input, checks it, and ends it with a newline.
func (g *globals) readAccessList(cmd *cobra.Command, text []string, p api.Path) ([]byte, error) {
	argument := "-"
	if len(text) > 0 {
		argument = text[0]
	}
	list, err := g.readInput(cmd, argument, p, "list")
	if err != nil {
		return nil, err
	}
	if argument == "-" && len(list) == 0 {
		return nil, usagef("acl file put: nothing came from standard input; write '' for a list that admits nobody. Nothing was sent")
	}
	if err := validateAccessList(string(list)); err != nil {
		return nil, err
	}
	if len(list) > 0 && list[len(list)-1] != '\n' {
		list = append(list, '\n')
	}
	return list, nil
}

// validateAccessList rejects lists with misleading lines. A cell accepts any file, and an unreadable line
// admits nobody: a typing error would lock people out.
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

// entryProblem returns the fault of a line of a list, or "".
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

func admitsAny(list []byte) bool {
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return true
		}
	}
	return false
}
