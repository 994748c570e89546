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
	var tree bool
	cmd := &cobra.Command{
		Use:   "rm PATH...",
		Short: "Delete files and directories",
		Long: fmt.Sprintf(`rm deletes files and empty directories. A node whose lock somebody else holds is
not deleted.

--if-sequencer deletes only while the lock that the sequencer speaks of is held in
that generation, and exits with %d if it is not, or SEQ is no sequencer.

An access control list whose end takes from you the right to create it again is not
deleted without --yes.

-r deletes directories with everything below them. Without --yes it says what there is,
deletes nothing, and exits with %d. A node whose lock somebody else holds, one that you may
not delete, and an ephemeral node, which belongs to a session, are left, with the
directories above them: rm says why, and exits with %d when the rest is done. It can be run
again. --timeout is for each node then.`, exitMismatch, exitUsage, exitFailed),
		Example: `  chubbyctl rm /ls/local/motd
  chubbyctl rm /ls/local/job/7 --if-sequencer "$CHUBBY_SEQUENCER"
  chubbyctl rm -r /ls/local/job          # what would be deleted?
  chubbyctl rm -r /ls/local/job --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			conditions, err := condition.options(cmd)
			if err != nil {
				return err
			}
			return condition.exitCodeOf(g.changeEach(args, func(p api.Path) error {
				if tree {
					return g.removeTree(cmd, p, agreed.yes, conditions)
				}
				return g.removeNode(cmd, p, agreed, conditions)
			}))
		},
	}
	condition.flag(cmd, "delete")
	agreed.flag(cmd)
	cmd.Flags().Lookup("yes").Usage = "with -r, do it; else do it even if it takes from you the right to undo it"
	cmd.Flags().BoolVarP(&tree, "recursive", "r", false, "delete directories with everything below them")
	return cmd
}

// removeNode deletes one node.
func (g *globals) removeNode(cmd *cobra.Command, p api.Path, agreed *consent, conditions []client.WriteOption) error {
	if err := agreed.confirmWrite(cmd.Context(), g, p, nil); err != nil {
		return err
	}
	return g.withHandle(cmd.Context(), p, client.OpenOptions{Write: true}, func(ctx context.Context, h *client.Handle) error {
		if err := h.Delete(ctx, conditions...); err != nil {
			if api.CodeOf(err) == api.NotEmpty {
				return fmt.Errorf("%w; 'chubbyctl rm -r %s' says what there is", err, quoted(p.String()))
			}
			return err
		}
		if g.json() {
			return g.output.Print(cmd.OutOrStdout(), removedFields{Path: p.String(), Deleted: true})
		}
		return nil
	})
}
