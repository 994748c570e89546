package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func lsVerb(g *globals, cmd *cobra.Command) {
	var long, tree bool
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
		if tree {
			out := cmd.OutOrStdout()
			style := term.StyleOf(out)
			whole := func(s api.Stat) string { return strings.TrimSuffix(s.Path.String(), s.Path.Base()) + label(s) }
			t := g.output.NewTable(out, longColumns()...)
			err := g.overTree(cmd, p, "", func(ctx context.Context, w *treeWalk, root api.Stat) error {
				return w.visit(ctx, root, treeVisitor{enter: func(s api.Stat) error {
					switch {
					case s.Path == p && s.Kind == api.Directory:
						return nil
					case g.json():
						return w.print(statFields(s))
					case long:
						addLong(t, s, whole(s))
						return nil
					}
					_, err := fmt.Fprintln(out, style.Name(whole(s)))
					return err
				}})
			})
			if long && !g.json() {
				err = errors.Join(err, t.Flush())
			}
			return err
		}
		nodes, err := readNode(cmd.Context(), g, p, func(c *client.Client, ctx context.Context, path string) ([]api.Stat, error) {
			list, err := c.List(ctx, path)
			if api.CodeOf(err) == api.NotDirectory { // a file lists itself
				stat, err := c.Stat(ctx, path)
				return []api.Stat{stat}, err
			}
			return list, err
		})
		if err != nil {
			return err
		}
		return printList(g.output, cmd.OutOrStdout(), nodes, long)
	})
	cmd.Flags().BoolVarP(&long, "long", "l", false, "with kind, size and generations")
	cmd.Flags().BoolVarP(&tree, "recursive", "R", false, "everything below the directory, with whole paths")
}

func printList(as term.Format, out io.Writer, nodes []api.Stat, long bool) error {
	list := term.List[api.Stat]{
		Fields: statFields, Add: func(t *term.Table, s api.Stat) { addLong(t, s, label(s)) }, Columns: longColumns(),
	}
	if long || as.ForPrograms() {
		return list.PrintAll(out, as, nodes)
	}
	return as.Draw(out, func(p *term.Page) {
		for _, s := range nodes {
			p.Line("%s", p.Name(label(s)))
		}
	})
}

func longColumns() []string {
	return []string{"KIND", "SIZE", "CONTENT", "LOCK", "INSTANCE", "NAME"}
}

func addLong(t *term.Table, s api.Stat, name string) {
	kind, size := s.Kind.String(), fmt.Sprint(s.Size)
	if s.Ephemeral {
		kind += "*"
	}
	if s.Kind == api.Directory {
		size = term.Counted(s.Children, "node")
	}
	if s.Withheld {
		t.Add(kind, "-", "-", "-", "-", name)
		return
	}
	t.Add(kind, size, s.Content, s.Lock, s.Instance, name)
}

func treeVerb(g *globals, cmd *cobra.Command) {
	var depth int
	levels := func(p api.Path) int { return strings.Count(string(p.Name()), "/") }
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
		if depth < 1 {
			return usagef("--depth %d: want 1 or more", depth)
		}
		style := term.StyleOf(cmd.OutOrStdout())
		var below []string // the prefix of a node's branch, for each level above
		return g.overTree(cmd, p, "", func(ctx context.Context, w *treeWalk, root api.Stat) error {
			return w.visit(ctx, root, treeVisitor{enter: func(s api.Stat) error {
				text, level := p.String(), levels(s.Path)-levels(p)
				if level > 0 {
					branch, stem := "├── ", "│   "
					if w.last {
						branch, stem = "└── ", "    "
					}
					text = strings.Join(below[:level-1], "") + branch + label(s)
					below = append(below[:level-1], stem)
				}
				err := w.print(statFields(s))
				if !g.json() {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), style.Name(text))
				}
				if err == nil && level == depth {
					err = errSkip
				}
				return err
			}})
		})
	})
	cmd.Flags().IntVar(&depth, "depth", api.MaxDepth, "how many levels to show")
}

// statFields returns a node's metadata for -o json. Of a node that the caller may not read they are what is visible, and after the
// caller's own change what was written. The checksum is hexadecimal: a JSON number is inexact for 64 bits.
func statFields(s api.Stat) term.Fields {
	f, checksum := term.Fields{"path", s.Path.String(), "kind", s.Kind.String(), "ephemeral", s.Ephemeral}, fmt.Sprintf("%016x", s.Checksum)
	if !s.Withheld {
		return append(f, "instance", s.Instance, "content_generation", s.Content, "lock_generation", s.Lock, "acl_generation", s.ACLs,
			"checksum", checksum, "size", s.Size, "children", s.Children, "acl", s.ACL, "modified", timestamp(s.ModifiedUnix))
	}
	f = append(f, "withheld", true).With("instance", s.Instance).With("content_generation", s.Content)
	if s.Content != 0 {
		f = append(f, "checksum", checksum, "size", s.Size)
	}
	f = f.With("modified", timestamp(s.ModifiedUnix))
	if s.ACLs != 0 {
		f = append(f, "acl_generation", s.ACLs, "acl", s.ACL)
	}
	return f
}

// printChange prints a node after a change: for programs always, for people with -v.
func (g *globals) printChange(out, remarks io.Writer, did string, s api.Stat) error {
	text := fmt.Sprintf("%s %v", did, s.Path)
	if !s.Withheld {
		text += fmt.Sprintf(" (content generation %d, instance %d)", s.Content, s.Instance)
	}
	return g.did(out, remarks, statFields(s), "%s", text)
}

// printCreated is printChange for a node just opened with Create. If it existed before, it asks for the
// metadata, if they are printed.
func printCreated(ctx context.Context, g *globals, out, remarks io.Writer, did string, h *client.Handle) error {
	if stat, created := h.CreatedStat(); created {
		return g.printChange(out, remarks, did, stat)
	}
	if !g.json() && !g.verbose {
		return nil
	}
	stat, err := h.Stat(ctx)
	if err != nil {
		return &exitError{exitFailed, fmt.Errorf("there is %s, but what it is like is not known: %w", h.Path(), err)}
	}
	return g.printChange(out, remarks, "there is", stat)
}

func statVerb(g *globals, cmd *cobra.Command, args []string) error {
	first := true
	return g.eachPath(args, func(path api.Path) error {
		if !first && !g.json() {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		first = false
		s, err := readNode(cmd.Context(), g, path, (*client.Client).Stat)
		if err != nil {
			return err
		}
		kind, size, much, modified := s.Kind.String(), "size", any(fmt.Sprintf("%d bytes, checksum %016x", s.Size, s.Checksum)), "-"
		if s.Ephemeral {
			kind = "ephemeral " + kind
		}
		if s.Kind == api.Directory {
			size, much = "children", s.Children
		}
		if at := timestamp(s.ModifiedUnix); at != nil {
			modified = fmt.Sprintf("%s (%s ago)", at.Format("2006-01-02 15:04:05 MST"), term.Roughly(since(s.ModifiedUnix)))
		}
		acl := fmt.Sprintf("read %s, write %s, change %s", term.OrDash(s.ACL.Read), term.OrDash(s.ACL.Write), term.OrDash(s.ACL.Change))
		return g.output.Show(cmd.OutOrStdout(), statFields(s), func(p *term.Page) {
			p.Fields("path", s.Path, "kind", kind, size, much, "instance", s.Instance, "content generation", s.Content,
				"lock generation", s.Lock, "acl generation", s.ACLs, "modified", modified, "acl", acl)
		})
	})
}

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
				switch {
				case p.IsRoot():
					return usagef("rm -r: %v is the root directory of its cell, which stays; name what is to be deleted below it", p)
				case p.Name() == api.ACLDir, isList(p):
					return usagef("rm -r: %v holds access control lists, which are deleted one by one: 'chubbyctl acl file rm NAME'", p)
				}
				return g.overTree(cmd, p, "deleted", func(ctx context.Context, w *treeWalk, root api.Stat) error {
					if !agreed.yes {
						return w.refuseRemoval(ctx, root)
					}
					w.keptLine = func(p api.Path, why string) any {
						return term.Fields{"path", p.String(), "deleted", false, "reason", why}
					}
					return w.visit(ctx, root, treeVisitor{lasting: true, leave: func(s api.Stat) error { return w.remove(ctx, s, conditions) }})
				})
			}
			return removeNode(g, cmd, p, agreed, conditions)
		}))
	}
	condition.flag(cmd, "delete")
	agreed.flag(cmd)
	cmd.Flags().Lookup("yes").Usage = "with -r, do it; else do it even if it takes from you the right to undo it"
	cmd.Flags().BoolVarP(&tree, "recursive", "r", false, "delete directories with everything below them")
}

func removeNode(g *globals, cmd *cobra.Command, p api.Path, agreed *consent, conditions []client.WriteOption) error {
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
			return g.output.Print(cmd.OutOrStdout(), removedFields(p))
		}
		return nil
	})
}

// removedFields returns the deletion of a node for -o json.
func removedFields(p api.Path) term.Fields { return term.Fields{"path", p.String(), "deleted", true} }

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
		return w.countNode(removedFields(s.Path))
	case code == api.NotFound, code == api.HandleClosed:
		return nil // another has deleted it
	case code == api.NotEmpty && w.left > 0:
		return nil // of remaining nodes
	}
	return unlessSkipped(w.leaveFor(s.Path, err, api.NotEmpty, api.LockHeld, api.PermissionDenied, api.NotDirectory, api.IsDirectory))
}
