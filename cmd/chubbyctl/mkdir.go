package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func newMkdirCommand(g *globals) *cobra.Command {
	var parents bool
	cmd := &cobra.Command{
		Use:               "mkdir PATH...",
		Short:             "Create directories",
		Example:           "  chubbyctl mkdir -p /ls/local/svc/web",
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: g.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.eachPath(args, func(p api.Path) error {
				return g.withSessionAt(cmd.Context(), p.Cell(), p, func(ctx context.Context, c *client.Client) error {
					h, err := makeDirectory(ctx, c, p, parents)
					if err != nil {
						return err
					}
					return g.printCreated(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), "created", h)
				})
			})
		},
	}
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "create the directories above too; no error if it is there")
	return cmd
}

func makeDirectory(ctx context.Context, c *client.Client, p api.Path, parents bool) (*client.Handle, error) {
	create := client.NewDirectory
	if parents {
		create = client.Directory
		if !p.IsRoot() {
			if _, err := makeDirectory(ctx, c, p.Parent(), true); err != nil {
				return nil, err
			}
		} else {
			create = client.Existing
		}
	}
	h, err := c.Open(ctx, p.String(), client.OpenOptions{Read: true, Create: create, Kind: api.Directory})
	if err != nil {
		return nil, withAdvice(err, p, create)
	}
	return h, nil
}
