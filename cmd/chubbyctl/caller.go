package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// operatorsList names the list of a cell's operators.
const operatorsList = "operators"

func whoamiVerb(g *globals, cmd *cobra.Command, cell string) error {
	principal, by := "", "none" // how the cell knows the user: certificate, token, or none
	var isOne *bool             // an operator; nil if the user may not know
	err := g.withCell(cmd.Context(), cell, func(ctx context.Context, c *client.Cell) error {
		id, err := client.Identify(ctx, c)
		if err != nil || id.Principal == "" {
			return err
		}
		principal, by = id.Principal, id.By
		overview, err := c.Overview(ctx, 1)
		isOne = &overview.Whole
		return err
	})
	if err == nil && principal == "" { // without authentication everybody sees everything: the lists say who is an operator
		err = g.withSession(cmd.Context(), cell, func(ctx context.Context, c *client.Client) (err error) {
			if principal, err = ownPrincipal(ctx, c); err == nil {
				isOne, err = isOperator(ctx, c, cell, principal)
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	knownBy, operator := "its "+by, "not known: you may not read "+listsOf(cell).String()+"/"+operatorsList
	switch {
	case by != "none":
	case g.as != "" && g.as == principal:
		knownBy = "its word (--as): the cell asks nobody who he is"
	case g.principal(cell) == principal:
		knownBy = "the name of your account: 'chubbyd dev' asks nobody who he is"
	default:
		knownBy = "nothing: the cell asks nobody who he is"
	}
	if isOne != nil {
		operator = map[bool]string{true: "yes", false: "no"}[*isOne]
	}
	f := term.Fields{"cell", cell, "principal", principal, "authentication", by, "operator", isOne}
	return g.output.Show(cmd.OutOrStdout(), f, func(p *term.Page) {
		p.Fields("cell", cell, "principal", principal, "known by", knownBy, "operator", operator)
	})
}

// isOperator reports whether a cell's lists make the session's principal an operator; nil if the user may not
// read the list.
func isOperator(ctx context.Context, c *client.Client, cell, principal string) (*bool, error) {
	list, err := listsOf(cell).Join(operatorsList)
	if err != nil {
		return nil, err
	}
	admitted := false
	_, err = c.Open(ctx, list.String(), client.OpenOptions{Read: true, Kind: api.File})
	switch api.CodeOf(err) {
	case api.OK:
		admitted, err = (&accessLists{client: c, cell: cell}).admits(ctx, operatorsList, principal, map[string]bool{})
	case api.NotFound:
		_, err = c.Open(ctx, "/"+api.Root+"/"+cell, client.OpenOptions{ChangeACL: true})
		if admitted = err == nil; api.CodeOf(err) == api.PermissionDenied {
			err = nil
		}
	case api.PermissionDenied:
		return nil, nil //nolint:nilnil // it is not known, and that is no error
	}
	return &admitted, err
}

// consent is the flag --yes, for changes that the user could not undo.
type consent struct{ yes bool }

func (o *consent) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do it even if it takes from you the right to undo it")
}

// refuse returns an error that describes the change; nil with --yes.
func (o *consent) refuse(what string) error {
	if o.yes {
		return nil
	}
	return usagef("%s. Nothing was changed; --yes does it all the same", what)
}

// confirmWrite refuses without --yes to write or delete an access control list, if the change takes from the
// user the right to undo it. after is nil for a deletion. Every command that can change a list calls it.
func (o *consent) confirmWrite(ctx context.Context, g *globals, p api.Path, after *string) error {
	if o.yes || !isList(p) {
		return nil
	}
	return g.withSessionAt(ctx, p.Cell(), p, func(ctx context.Context, c *client.Client) error {
		return o.confirmListChanges(ctx, c, map[api.Path]*string{p: after})
	})
}

// accessLists reads a cell's access control lists as a change leaves them. It is for one goroutine.
type accessLists struct {
	client  *client.Client
	cell    string
	changed map[string]*string // by name; nil: deleted
}

// readList returns the text of a list. A missing or unreadable list is empty: it visibly admits nobody.
func (l *accessLists) readList(ctx context.Context, name string) (string, error) {
	if text, ok := l.changed[name]; ok {
		if text == nil {
			return "", nil
		}
		return *text, nil
	}
	p, err := listsOf(l.cell).Join(name)
	if err != nil {
		return "", nil //nolint:nilerr // no list has such a name
	}
	text, _, err := l.client.Get(ctx, p.String())
	if code := api.CodeOf(err); code == api.NotFound || code == api.PermissionDenied {
		return "", nil
	}
	return string(text), err
}

// maxListsRead is how many lists one question may read; the cell has the same limit.
const maxListsRead = 64

// admits reports whether a list, or one that it includes, admits a principal. It reads each list once.
func (l *accessLists) admits(ctx context.Context, name, principal string, seen map[string]bool) (bool, error) {
	if seen[name] || len(seen) >= maxListsRead {
		return false, nil
	}
	seen[name] = true
	text, err := l.readList(ctx, name)
	if err != nil {
		return false, err
	}
	var included []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		list, isList := strings.CutPrefix(line, "@")
		switch {
		case line == "" || line[0] == '#':
		case line == "*" || line == principal && !isList:
			return true, nil
		case isList:
			included = append(included, list)
		}
	}
	for _, list := range included {
		if in, err := l.admits(ctx, list, principal, seen); in || err != nil {
			return in, err
		}
	}
	return false, nil
}

func ownPrincipal(ctx context.Context, c *client.Client) (string, error) {
	own, found, err := c.Cell().FindSession(ctx, c.Session())
	if err == nil && !found {
		err = api.Errorf(api.Unavailable, "the cell does not list this session")
	}
	return own.Principal, err
}

// excludesCaller reports whether a list excludes the user, as far as the lists are readable here.
func (l *accessLists) excludesCaller(ctx context.Context, list string) (bool, error) {
	own, err := ownPrincipal(ctx, l.client)
	if err != nil {
		return false, err
	}
	has, err := l.admits(ctx, list, own, map[string]bool{})
	return !has, err
}

// confirmListChanges refuses changes of one cell's lists without --yes, if the user loses the right to change
// or create one of them again. nil: deleted.
func (o *consent) confirmListChanges(ctx context.Context, c *client.Client, lists map[api.Path]*string) error {
	if o.yes || len(lists) == 0 {
		return nil
	}
	paths := slices.SortedFunc(maps.Keys(lists), func(a, b api.Path) int { return strings.Compare(a.String(), b.String()) })
	l := &accessLists{client: c, cell: paths[0].Cell(), changed: map[string]*string{}}
	for p, after := range lists {
		l.changed[p.Base()] = after
	}
	for _, p := range paths {
		for _, one := range []api.Path{p, p.Parent()} {
			if err := o.confirmListChange(ctx, l, p, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// confirmListChange is confirmListChanges for one of the lists in l, and one node: the list, or the directory of lists.
func (o *consent) confirmListChange(ctx context.Context, l *accessLists, p, at api.Path) error {
	// The cell decides about the user's present right: it also reads lists that the user may not read.
	h, err := l.client.Open(ctx, at.String(), client.OpenOptions{Write: true})
	if code := api.CodeOf(err); code == api.NotFound || code == api.PermissionDenied {
		return nil // the list is new, or the user has no right to lose
	}
	if err != nil {
		return err
	}
	stat, err := h.Stat(ctx)
	if err != nil {
		return err
	}
	list := stat.ACL.Write
	if p.Base() == operatorsList && list == "everyone" { // this change closes it: see docs/operations.md, "Operators"
		list = operatorsList
	}
	lost, err := l.excludesCaller(ctx, list)
	if err != nil || !lost {
		return err
	}
	return o.refuse(fmt.Sprintf("after this change of the list %s you may not write %v any more, and so not undo it", p.Base(), at))
}

// confirmNames refuses new ACL names of a node without --yes, if the user loses the right to change them again.
func (o *consent) confirmNames(ctx context.Context, c *client.Client, p api.Path, before api.ACL, change string) error {
	if o.yes || change == "" || change == before.Change {
		return nil
	}
	lost, err := (&accessLists{client: c, cell: p.Cell()}).excludesCaller(ctx, change)
	if err != nil || !lost {
		return err
	}
	return o.refuse(fmt.Sprintf("the list %s does not admit you, and you could not change the ACL names of %v again", change, p))
}

// confirmSessions refuses a quota of sessions without --yes, if the user could open no other session to reset
// it: other sessions of the principal use it up.
func (o *consent) confirmSessions(ctx context.Context, c *client.Client, principal string, sessions int) error {
	if o.yes || sessions == 0 {
		return nil
	}
	own, err := ownPrincipal(ctx, c)
	if err != nil || own != principal {
		return err
	}
	all, err := c.Cell().Quotas(ctx)
	if err != nil {
		return err
	}
	for _, q := range all {
		if others := q.Used.Sessions - 1; q.Principal == principal && others >= sessions {
			return o.refuse(fmt.Sprintf("%s, which is also you, has %s besides this command's; with --sessions %d nobody of that name could open another, also not to undo it",
				term.Printable(principal), term.Counted(others, "session"), sessions))
		}
	}
	return nil
}
