package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

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

func actWords() (words []string) {
	for _, a := range acts() {
		words = append(words, a.word)
	}
	return words
}

type permission struct {
	Path      string `json:"path"`
	Act       string `json:"act"`
	Principal string `json:"principal"`
	Allowed   bool   `json:"allowed"`
	Reason    string `json:"reason"`
}

func newACLCanCommand(g *globals) *cobra.Command {
	var lines []string
	for _, a := range acts() {
		lines = append(lines, fmt.Sprintf("  %-7s %s", a.word, a.explain))
	}
	return &cobra.Command{
		Use:   "can ACT PATH",
		Short: "Ask whether you may do something",
		Long: fmt.Sprintf(`can asks the cell whether you may do something at a node, and why or why not; nothing is
done. It exits with 0 if you may, and with %d if you may not. ACT is one of
%s

What may be done also depends on quotas, on who holds the lock, and on what is in a
directory, of which can says nothing. The cell answers as it would to the act itself, so
a no is a refusal in its audit log.`, exitFailed, strings.Join(lines, "\n")),
		Example: `  chubbyctl acl can write /ls/local/svc/config
  chubbyctl acl can lock /ls/local/nightly || echo 'ask the operators'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, a := range acts() {
				if a.word != args[0] {
					continue
				}
				p, err := g.parsePath(args[1])
				if err != nil {
					return err
				}
				answer, err := g.askPermission(cmd.Context(), a, p)
				if err != nil {
					return err
				}
				return g.printPermission(cmd.OutOrStdout(), answer)
			}
			return usagef("acl can: %q is nothing that lists speak of; want one of %s", args[0], strings.Join(actWords(), ", "))
		},
	}
}

func (g *globals) askPermission(ctx context.Context, a act, p api.Path) (permission, error) {
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

func (g *globals) printPermission(out io.Writer, p permission) error {
	err := g.output.Show(out, p, func(page *term.Page) {
		page.Paragraph(term.Plain, term.Printable(p.Reason), map[bool]string{true: "yes: ", false: "no: "}[p.Allowed])
	})
	if err == nil && !p.Allowed {
		err = &exitError{code: exitFailed}
	}
	return err
}
