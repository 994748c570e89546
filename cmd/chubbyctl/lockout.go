package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// consent is --yes, for what cannot be taken back by those who do it.
type consent struct{ yes bool }

func (o *consent) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do it even if it takes from you the right to undo it")
}

// refuse says what a change would do, if it is not agreed to.
func (o *consent) refuse(what string) error {
	if o.yes {
		return nil
	}
	return usagef("%s. Nothing was changed; --yes does it all the same", what)
}

// lists reads the access control lists of a cell, and knows what they will be
// after a change. It belongs to one goroutine.
type lists struct {
	client  *client.Client
	cell    string
	changed map[string]*string // by name; nil is a list that is deleted
}

// get returns a list; one that is not there, or may not be read, admits nobody.
func (l *lists) get(ctx context.Context, name string) (string, error) {
	if text, ok := l.changed[name]; ok {
		if text == nil {
			return "", nil
		}
		return *text, nil
	}
	p, err := listsOf(l.cell).Join(name)
	if err != nil {
		return "", nil // no list can have such a name
	}
	h, err := l.client.Open(ctx, p.String(), client.OpenOptions{Read: true, Kind: api.File})
	if code := api.CodeOf(err); code == api.NotFound || code == api.PermissionDenied {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = h.Close(ctx) }() // at the end of the session at the latest
	text, _, err := h.Contents(ctx)
	return string(text), err
}

// deepest is how far lists that include lists are followed.
const deepest = 8

// admits reports whether a list admits a principal.
func (l *lists) admits(ctx context.Context, name, principal string, seen ...string) (bool, error) {
	if len(seen) >= deepest || slices.Contains(seen, name) {
		return false, nil
	}
	text, err := l.get(ctx, name)
	if err != nil {
		return false, err
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "*" || line != "" && line == principal {
			return true, nil
		}
		if included, ok := strings.CutPrefix(line, "@"); ok {
			if in, err := l.admits(ctx, included, principal, append(seen, name)...); in || err != nil {
				return in, err
			}
		}
	}
	return false, nil
}

// loses reports whether the one who asks is admitted by the list before as it is
// now, and not by the list after as it will be. Without the right now there is
// nothing to lose, and the cell refuses the change.
func (l *lists) loses(ctx context.Context, before, after string) (bool, error) {
	principal, err := whoAmI(ctx, l.client)
	if err != nil {
		return false, err
	}
	now := &lists{client: l.client, cell: l.cell}
	had, err := now.admits(ctx, before, principal)
	if err != nil || !had {
		return false, err
	}
	has, err := l.admits(ctx, after, principal)
	return !has, err
}

// whoAmI is the principal that the cell takes this session for.
func whoAmI(ctx context.Context, c *client.Client) (string, error) {
	sessions, err := c.Sessions(ctx)
	for _, s := range sessions {
		if s.Session == c.Session() {
			return s.Principal, nil
		}
	}
	if err == nil {
		err = api.Errorf(api.Unavailable, "the cell does not list this session")
	}
	return "", err
}

// changeList asks for consent if a change of a list would take from the one who
// makes it the right to change that list, or to create it, again. after is nil for
// a list that is to be deleted.
func (o *consent) changeList(ctx context.Context, c *client.Client, p api.Path, after *string) error {
	if o.yes {
		return nil
	}
	l := &lists{client: c, cell: p.Cell(), changed: map[string]*string{p.Base(): after}}
	for _, one := range []api.Path{p, p.Parent()} {
		h, err := c.Open(ctx, one.String(), client.OpenOptions{Read: true})
		if code := api.CodeOf(err); code == api.NotFound || code == api.PermissionDenied {
			continue // it is being created, or its names are not for those who ask
		}
		if err != nil {
			return err
		}
		stat, err := h.Stat(ctx)
		if err != nil {
			return err
		}
		lost, err := l.loses(ctx, stat.ACL.Write, stat.ACL.Write)
		if err != nil {
			return err
		}
		if lost {
			return o.refuse(fmt.Sprintf("after this change of the list %s you may not write %v any more, and so not undo it", p.Base(), one))
		}
	}
	return nil
}

// changeNames asks for consent if new ACL names of a node would take from the one
// who gives them the right to change them again.
func (o *consent) changeNames(ctx context.Context, c *client.Client, p api.Path, before api.ACL, change string) error {
	if o.yes || change == "" || change == before.Change {
		return nil
	}
	lost, err := (&lists{client: c, cell: p.Cell()}).loses(ctx, before.Change, change)
	if err != nil || !lost {
		return err
	}
	return o.refuse(fmt.Sprintf("the list %s does not admit you, and you could not change the ACL names of %v again", change, p))
}
