package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func aclGetVerb(g *globals, cmd *cobra.Command, p api.Path) error {
	stat, err := readNode(cmd.Context(), g, p, (*client.Client).Stat)
	if err != nil {
		return err
	}
	return printACL(g.output, cmd.OutOrStdout(), stat)
}

func nameFields(s api.Stat) term.Fields {
	return term.Fields{"path", s.Path.String(), "acl", s.ACL, "acl_generation", s.ACLs}
}

func printACL(as term.Format, out io.Writer, s api.Stat) error {
	return as.Show(out, nameFields(s), func(p *term.Page) {
		p.Fields("read", s.ACL.Read, "write", s.ACL.Write, "change", s.ACL.Change, "acl generation", s.ACLs)
	})
}

func aclSetVerb(g *globals, cmd *cobra.Command) {
	var acl api.ACL
	var ifGeneration uint64
	agreed := &consent{}
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
		changes := false
		for _, given := range []struct{ flag, name string }{{"read", acl.Read}, {"write", acl.Write}, {"change", acl.Change}} {
			if !cmd.Flags().Changed(given.flag) {
				continue
			}
			changes = true
			if fault := listNameProblem(given.name); fault != "" {
				return usagef("--%s: %q cannot be the name of a list: %s", given.flag, abridged(given.name), fault)
			}
		}
		if !changes {
			return usagef("acl set: nothing to change; give one or more of --read, --write and --change")
		}
		var conditions []client.WriteOption
		if cmd.Flags().Changed("if-generation") {
			conditions = append(conditions, client.IfGeneration(api.Generation(ifGeneration)))
		}
		return g.withSessionAt(cmd.Context(), p.Cell(), p, func(ctx context.Context, c *client.Client) error {
			h, err := c.Open(ctx, p.String(), client.OpenOptions{ChangeACL: true})
			if err != nil {
				return err
			}
			before, err := h.Stat(ctx)
			if err == nil {
				err = agreed.confirmNames(ctx, c, p, before.ACL, acl.Change)
			}
			if err != nil {
				return err
			}
			stat, err := h.SetACL(ctx, acl, conditions...)
			if err != nil {
				return err
			}
			return g.did(cmd.OutOrStdout(), cmd.ErrOrStderr(), nameFields(stat), "changed the ACL names of %v (ACL generation %d)", stat.Path, stat.ACLs)
		})
	})
	flags := cmd.Flags()
	flags.StringVar(&acl.Read, "read", "", "`NAME` of the list of those who may read")
	flags.StringVar(&acl.Write, "write", "", "`NAME` of the list of those who may write, delete and lock")
	flags.StringVar(&acl.Change, "change", "", "`NAME` of the list of those who may change these names, and take the lock away")
	agreed.flag(cmd)
	flags.Uint64Var(&ifGeneration, "if-generation", 0, "change only if the names are at ACL generation `G`")
}

// act is an action on a node that needs a right.
type act struct {
	word    string
	opens   client.OpenOptions   // how to open a node to find out
	list    func(api.ACL) string // the name of the list with the right
	inside  bool                 // the directory of the node decides
	explain string
}

// acts returns all actions, with the right that each needs (Chubby §2.3).
func acts() []act {
	readers := func(a api.ACL) string { return a.Read }
	writers := func(a api.ACL) string { return a.Write }
	return []act{
		{word: "read", opens: client.OpenOptions{Read: true}, list: readers, explain: "contents, metadata and listings"},
		{word: "write", opens: client.OpenOptions{Write: true}, list: writers, explain: "contents"},
		{word: "lock", opens: client.OpenOptions{Write: true}, list: writers, explain: "it, in either mode"},
		{word: "delete", opens: client.OpenOptions{Write: true}, list: writers, explain: "it"},
		{word: "create", opens: client.OpenOptions{Write: true, Kind: api.Directory}, list: writers, inside: true, explain: "a node there"},
		{word: "change", opens: client.OpenOptions{ChangeACL: true}, list: func(a api.ACL) string { return a.Change }, explain: "its ACL names"},
	}
}

func actWords() []string { return term.Each(acts(), func(a act) string { return a.word }) }

type permission struct {
	Path      string `json:"path"`
	Act       string `json:"act"`
	Principal string `json:"principal"`
	Allowed   bool   `json:"allowed"`
	Reason    string `json:"reason"`
}

func aclCanVerb(g *globals, cmd *cobra.Command, args []string) error {
	for _, a := range acts() {
		if a.word != args[0] {
			continue
		}
		p, err := g.parsePath(args[1])
		if err != nil {
			return err
		}
		answer, err := askPermission(cmd.Context(), g, a, p)
		if err != nil {
			return err
		}
		err = g.output.Show(cmd.OutOrStdout(), answer, func(page *term.Page) {
			page.Paragraph(term.Plain, term.Printable(answer.Reason), map[bool]string{true: "yes: ", false: "no: "}[answer.Allowed])
		})
		if err == nil && !answer.Allowed {
			err = &exitError{code: exitFailed}
		}
		return err
	}
	return usagef("acl can: %q is nothing that lists speak of; want one of %s", args[0], strings.Join(actWords(), ", "))
}

func askPermission(ctx context.Context, g *globals, a act, p api.Path) (permission, error) {
	answer := permission{Path: p.String(), Act: a.word}
	at := p
	if a.inside {
		if p.IsRoot() {
			return answer, usagef("acl can create: %v is the root directory of its cell, and is there; name a node below it", p)
		}
		at = p.Parent()
	}
	err := g.withSessionAt(ctx, p.Cell(), p, func(ctx context.Context, c *client.Client) (err error) {
		if answer.Principal, err = ownPrincipal(ctx, c); err != nil {
			return err
		}
		h, err := c.Open(ctx, at.String(), a.opens)
		if code := api.CodeOf(err); code == api.PermissionDenied || code == api.NotFound || code == api.NotDirectory {
			answer.Reason = explanation(err)
			return nil
		}
		if err != nil {
			return err
		}
		answer.Allowed = true
		stat, err := h.Stat(ctx)
		answer.Reason = fmt.Sprintf("the list %s, which %v names, admits %s", a.list(stat.ACL), at, answer.Principal)
		if stat.Withheld { // the client may not read it
			answer.Reason = fmt.Sprintf("a list that %v names admits %s", at, answer.Principal)
		}
		return err
	})
	return answer, err
}

// listPath returns the path of a list: text is a NAME in the default cell, or the path of a file in any cell's
// directory of lists.
func listPath(g *globals, text string) (api.Path, error) {
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

func aclFileLsVerb(g *globals, cmd *cobra.Command, cell string) error {
	lists, err := readNode(cmd.Context(), g, listsOf(cell), (*client.Client).List)
	if err != nil {
		return err
	}
	return printList(g.output, cmd.OutOrStdout(), lists, false)
}

func aclFileCatVerb(g *globals, cmd *cobra.Command, args []string) error {
	p, err := listPath(g, args[0])
	if err != nil {
		return err
	}
	return printFile(g, cmd, p)
}

func aclFileRmVerb(g *globals, cmd *cobra.Command) {
	o := &consent{}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := listPath(g, args[0])
		if err != nil {
			return err
		}
		return removeNode(g, cmd, p, o, nil)
	}
	o.flag(cmd)
}

func aclFilePutVerb(g *globals, cmd *cobra.Command) {
	o := &consent{}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := listPath(g, args[0])
		if err != nil {
			return err
		}
		list, err := readAccessList(g, cmd, args[1:], p)
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
func readAccessList(g *globals, cmd *cobra.Command, text []string, p api.Path) ([]byte, error) {
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
