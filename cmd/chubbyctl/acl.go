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

func aclGetVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
		stat, err := readNode(cmd.Context(), g, p, (*client.Client).Stat)
		if err != nil {
			return err
		}
		return g.printACL(cmd.OutOrStdout(), stat)
	})
}

type namesFields struct {
	Path          string         `json:"path"`
	ACL           api.ACL        `json:"acl"`
	ACLGeneration api.Generation `json:"acl_generation"`
}

func (g *globals) printACL(out io.Writer, s api.Stat) error {
	return g.output.Show(out, namesFields{s.Path.String(), s.ACL, s.ACLs}, func(p *term.Page) {
		p.Fields("read", s.ACL.Read, "write", s.ACL.Write, "change", s.ACL.Change, "acl generation", s.ACLs)
	})
}

type aclSetOptions struct {
	*globals
	consent
	acl          api.ACL
	ifGeneration uint64
	conditional  bool
}

func aclSetVerb(g *globals, cmd *cobra.Command) {
	o := &aclSetOptions{globals: g}
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
		if err := o.validate(cmd); err != nil {
			return err
		}
		return o.setNames(cmd, p)
	})
	flags := cmd.Flags()
	flags.StringVar(&o.acl.Read, "read", "", "`NAME` of the list of those who may read")
	flags.StringVar(&o.acl.Write, "write", "", "`NAME` of the list of those who may write, delete and lock")
	flags.StringVar(&o.acl.Change, "change", "", "`NAME` of the list of those who may change these names, and take the lock away")
	o.flag(cmd)
	flags.Uint64Var(&o.ifGeneration, "if-generation", 0, "change only if the names are at ACL generation `G`")
}

func (o *aclSetOptions) validate(cmd *cobra.Command) error {
	o.conditional = cmd.Flags().Changed("if-generation")
	changes := false
	for _, given := range []struct{ flag, name string }{{"read", o.acl.Read}, {"write", o.acl.Write}, {"change", o.acl.Change}} {
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
	return nil
}

func (o *aclSetOptions) setNames(cmd *cobra.Command, p api.Path) error {
	var conditions []client.WriteOption
	if o.conditional {
		conditions = append(conditions, client.IfGeneration(api.Generation(o.ifGeneration)))
	}
	return o.withSessionAt(cmd.Context(), p.Cell(), p, func(ctx context.Context, c *client.Client) error {
		h, err := c.Open(ctx, p.String(), client.OpenOptions{ChangeACL: true})
		if err != nil {
			return err
		}
		before, err := h.Stat(ctx)
		if err == nil {
			err = o.confirmNames(ctx, c, p, before.ACL, o.acl.Change)
		}
		if err != nil {
			return err
		}
		stat, err := h.SetACL(ctx, o.acl, conditions...)
		if err != nil {
			return err
		}
		fields := namesFields{stat.Path.String(), stat.ACL, stat.ACLs}
		return o.did(cmd.OutOrStdout(), cmd.ErrOrStderr(), fields, "changed the ACL names of %v (ACL generation %d)", stat.Path, stat.ACLs)
	})
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

func aclCanVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
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
