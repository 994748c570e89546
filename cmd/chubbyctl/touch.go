package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

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
