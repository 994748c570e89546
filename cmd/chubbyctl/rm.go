package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func rmVerb(g *globals, cmd *cobra.Command) {
	condition, agreed := &sequencerCondition{}, &consent{}
	var tree bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
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
	}
	condition.flag(cmd, "delete")
	agreed.flag(cmd)
	cmd.Flags().Lookup("yes").Usage = "with -r, do it; else do it even if it takes from you the right to undo it"
	cmd.Flags().BoolVarP(&tree, "recursive", "r", false, "delete directories with everything below them")
}

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

type removedFields struct {
	Path    string `json:"path"`
	Deleted bool   `json:"deleted"`
	Reason  string `json:"reason,omitempty"` // why not
}

func (g *globals) removeTree(cmd *cobra.Command, p api.Path, yes bool, conditions []client.WriteOption) error {
	switch {
	case p.IsRoot():
		return usagef("rm -r: %v is the root directory of its cell, which stays; name what is to be deleted below it", p)
	case p.Name() == api.ACLDir, isList(p):
		return usagef("rm -r: %v holds access control lists, which are deleted one by one: 'chubbyctl acl file rm NAME'", p)
	}
	return g.overTree(cmd, p, "deleted", func(ctx context.Context, w *treeWalk, root api.Stat) error {
		if !yes {
			return w.refuseRemoval(ctx, root)
		}
		w.keptLine = func(p api.Path, why string) any { return removedFields{Path: p.String(), Reason: why} }
		return w.visit(ctx, root, treeVisitor{lasting: true, leave: func(s api.Stat) error { return w.remove(ctx, s, conditions) }})
	})
}

func (w *treeWalk) refuseRemoval(ctx context.Context, root api.Stat) error {
	files, directories, ephemeral, hidden := 0, 0, 0, 0
	err := w.visit(ctx, root, treeVisitor{
		enter: func(s api.Stat) error {
			switch {
			case s.Ephemeral:
				ephemeral++
			case s.Kind == api.File:
				files++
			default:
				directories++
			}
			return nil
		},
		fail: func(api.Stat, error) error { hidden++; return nil },
	})
	if err != nil {
		return err
	}
	var all []client.LockInfo
	err = w.call(ctx, root.Path, func(ctx context.Context) (err error) {
		all, err = w.client.Cell().Locks(ctx, root.Path.String())
		return err
	})
	if err != nil {
		return err
	}
	locks := len(slices.DeleteFunc(all, func(l client.LockInfo) bool { return len(l.Holders) == 0 }))
	text := fmt.Sprintf("rm -r: at and below %v there are %s and %s", root.Path, term.Counted(files, "file"), term.Counted(directories, "directory"))
	if ephemeral > 0 {
		text += fmt.Sprintf(", and %s, which are left", term.Counted(ephemeral, "ephemeral node"))
	}
	if locks > 0 {
		text += fmt.Sprintf("; %s held, and nodes whose lock another holds are left", map[bool]string{true: "1 lock is", false: fmt.Sprintf("%d locks are", locks)}[locks == 1])
	}
	if hidden > 0 {
		text += fmt.Sprintf("; into %s you may not look", term.Counted(hidden, "directory"))
	}
	return usagef("%s. Nothing was deleted; --yes deletes them", text)
}

// remove deletes a node after its children. It skips nodes that it must not delete.
func (w *treeWalk) remove(ctx context.Context, s api.Stat, conditions []client.WriteOption) error {
	err := w.with(ctx, s.Path, client.OpenOptions{Write: true, Kind: s.Kind}, func(ctx context.Context, h *client.Handle) error {
		return h.Delete(ctx, conditions...)
	})
	switch code := api.CodeOf(err); {
	case err == nil:
		return w.count(removedFields{Path: s.Path.String(), Deleted: true})
	case code == api.NotFound, code == api.HandleClosed:
		return nil // another has deleted it
	case code == api.NotEmpty && w.left > 0:
		return nil // of remaining nodes
	}
	return unlessSkipped(w.leaveFor(s.Path, err, api.NotEmpty, api.LockHeld, api.PermissionDenied, api.NotDirectory, api.IsDirectory))
}
