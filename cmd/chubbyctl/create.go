package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func newMkdirCommand(g *globals) *cobra.Command {
	var parents bool
	cmd := &cobra.Command{
		Use:     "mkdir PATH...",
		Short:   "Create directories",
		Example: "  chubbyctl mkdir -p /ls/local/svc/web",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.changeEach(args, func(p api.Path) error {
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

func makeDirectory(ctx context.Context, c *client.Client, p api.Path, parents bool) (h *client.Handle, err error) {
	dirs := []api.Path{p}
	for parents && !dirs[0].IsRoot() {
		dirs = slices.Insert(dirs, 0, dirs[0].Parent())
	}
	made := false
	for _, dir := range dirs {
		create := client.NewDirectory
		switch {
		case parents && dir.IsRoot():
			create = client.Existing
		case parents:
			create = client.Directory
		}
		h, err = c.Open(ctx, dir.String(), client.OpenOptions{Read: true, Create: create, Kind: api.Directory})
		if err != nil {
			return nil, afterSteps(made, withAdvice(err, dir, create))
		}
		made = made || h.Created()
	}
	return h, nil
}

func newTouchCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "touch PATH...",
		Short:   "Create empty files where there are none",
		Example: "  chubbyctl touch /ls/local/svc/lock",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.changeEach(args, func(p api.Path) error {
				return g.withHandle(cmd.Context(), p, client.OpenOptions{Read: true, Create: client.File, Kind: api.File}, func(ctx context.Context, h *client.Handle) error {
					return g.printCreated(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), "created", h)
				})
			})
		},
	}
}
