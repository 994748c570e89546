package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type removedFields struct {
	Path    string `json:"path"`
	Deleted bool   `json:"deleted"`
	Reason  string `json:"reason,omitempty"` // why not
}

// removeTree deletes a node and everything below it.
func (g *globals) removeTree(cmd *cobra.Command, p api.Path, yes bool, conditions []client.WriteOption) error {
	switch {
	case p.IsRoot():
		return usagef("rm -r: %v is the root directory of its cell, which stays; name what is to be deleted below it", p)
	case p.Name() == api.ACLDir, isList(p):
		return usagef("rm -r: %v holds access control lists, which are deleted one by one: 'chubbyctl acl file rm NAME'", p)
	}
	return g.withTree(cmd, p, "deleted", func(ctx context.Context, w *treeWalk) error {
		root, err := w.stat(ctx, p)
		if err != nil {
			return err
		}
		if !yes {
			return w.refuseRemoval(ctx, root)
		}
		w.keptLine = func(p api.Path, why string) any { return removedFields{Path: p.String(), Reason: why} }
		return w.visit(ctx, root, treeVisitor{lasting: true, leave: func(s api.Stat) error { return w.remove(ctx, s, conditions) }})
	})
}

// refuseRemoval says what rm -r would delete.
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
	locks := 0
	err = w.call(ctx, root.Path, func(ctx context.Context) error {
		locks = 0
		for l, err := range w.client.Cell().EachLock(ctx, root.Path.String()) {
			if err != nil {
				return err
			}
			if len(l.Holders) > 0 {
				locks++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("rm -r: at and below %v there are %s and %s", root.Path, term.Counted(files, "file"), countedDirectories(directories))
	if ephemeral > 0 {
		text += fmt.Sprintf(", and %s, which are left", term.Counted(ephemeral, "ephemeral node"))
	}
	if locks > 0 {
		text += fmt.Sprintf("; %s held, and nodes whose lock another holds are left", map[bool]string{true: "1 lock is", false: fmt.Sprintf("%d locks are", locks)}[locks == 1])
	}
	if hidden > 0 {
		text += fmt.Sprintf("; into %s you may not look", countedDirectories(hidden))
	}
	return usagef("%s. Nothing was deleted; --yes deletes them", text)
}

func countedDirectories(n int) string {
	if n == 1 {
		return "1 directory"
	}
	return fmt.Sprintf("%d directories", n)
}

// remove deletes a node, what was below it being gone. What must not be deleted is left, and the rest goes on.
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
		return nil // of what was left
	}
	return unlessSkipped(w.leaveFor(s.Path, err, api.NotEmpty, api.LockHeld, api.PermissionDenied, api.NotDirectory, api.IsDirectory))
}
