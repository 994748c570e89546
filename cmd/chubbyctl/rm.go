package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func newRmCommand(g *globals) *cobra.Command {
	condition, agreed := &sequencerCondition{}, &consent{}
	cmd := &cobra.Command{
		Use:   "rm PATH...",
		Short: "Delete files and empty directories",
		Long: fmt.Sprintf(`rm deletes files and empty directories. A node whose lock somebody else holds is
not deleted.

--if-sequencer deletes only while the lock that the sequencer speaks of is held in
that generation, and exits with %d if it is not, or SEQ is no sequencer.

An access control list whose end takes from you the right to create it again is not
deleted without --yes.`, exitMismatch),
		Example: `  chubbyctl rm /ls/local/motd
  chubbyctl rm /ls/local/job/7 --if-sequencer "$CHUBBY_SEQUENCER"`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: g.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			conditions, err := condition.options(cmd)
			if err != nil {
				return err
			}
			return condition.exitCodeOf(g.eachPath(args, func(p api.Path) error { return g.removeNode(cmd, p, agreed, conditions) }))
		},
	}
	condition.flag(cmd, "delete")
	agreed.flag(cmd)
	return cmd
}

// removeNode deletes one node.
func (g *globals) removeNode(cmd *cobra.Command, p api.Path, agreed *consent, conditions []client.WriteOption) error {
	if err := agreed.confirmWrite(cmd.Context(), g, p, nil); err != nil {
		return err
	}
	return g.withHandle(cmd.Context(), p, client.OpenOptions{Write: true}, func(ctx context.Context, h *client.Handle) error {
		if err := h.Delete(ctx, conditions...); err != nil {
			return err
		}
		if g.json() {
			return g.output.Print(cmd.OutOrStdout(), map[string]any{"path": p.String(), "deleted": true})
		}
		return nil
	})
}
