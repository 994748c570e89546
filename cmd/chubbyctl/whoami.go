package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// operatorsList names the list of a cell's operators.
const operatorsList = "operators"

// caller is the user as the cell sees it.
type caller struct {
	Cell      string `json:"cell"`
	Principal string `json:"principal"`
	By        string `json:"authentication"` // how the cell knows the user: certificate, token, or none
	Operator  *bool  `json:"operator"`       // null if the user may not know
}

func whoamiVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = g.onCell(func(cmd *cobra.Command, cell string) error {
		who, err := g.findCaller(cmd.Context(), cell)
		if err != nil {
			return err
		}
		return g.printCaller(cmd.OutOrStdout(), who)
	})
}

func (g *globals) findCaller(ctx context.Context, cell string) (caller, error) {
	who := caller{Cell: cell, By: "none"}
	err := g.withCell(ctx, cell, func(ctx context.Context, c *client.Cell) error {
		id, err := client.Identify(ctx, c)
		if err != nil || id.Principal == "" {
			return err
		}
		who.Principal, who.By = id.Principal, id.By
		overview, err := c.Overview(ctx, 1)
		who.Operator = &overview.Whole
		return err
	})
	if err != nil || who.Principal != "" {
		return who, err
	}
	// Without authentication everybody sees everything: the lists say who is an operator.
	err = g.withSession(ctx, cell, func(ctx context.Context, c *client.Client) (err error) {
		if who.Principal, err = ownPrincipal(ctx, c); err == nil {
			who.Operator, err = isOperator(ctx, c, cell, who.Principal)
		}
		return err
	})
	return who, err
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

func (g *globals) printCaller(out io.Writer, who caller) error {
	by := "its " + who.By
	switch {
	case who.By != "none":
	case g.as != "" && g.as == who.Principal:
		by = "its word (--as): the cell asks nobody who he is"
	case g.principal(who.Cell) == who.Principal:
		by = "the name of your account: 'chubbyd dev' asks nobody who he is"
	default:
		by = "nothing: the cell asks nobody who he is"
	}
	operator := "not known: you may not read " + listsOf(who.Cell).String() + "/" + operatorsList
	if who.Operator != nil {
		operator = map[bool]string{true: "yes", false: "no"}[*who.Operator]
	}
	return g.output.Show(out, who, func(p *term.Page) {
		p.Fields("cell", who.Cell, "principal", who.Principal, "known by", by, "operator", operator)
	})
}
