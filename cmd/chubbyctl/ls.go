package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func newLsCommand(g *globals) *cobra.Command {
	var long, tree bool
	cmd := &cobra.Command{
		Use:     "ls [PATH]",
		Aliases: []string{"list"},
		Short:   "List a directory",
		Long: `ls lists the names in a directory, directories with a slash behind. With -o json it
prints the fields of stat for each. Of a node that you may not read only the name and
the kind are told: -l shows "-" for the rest, and JSON has "withheld": true in place of
the other fields.

-R lists everything below a directory, a whole path a line, as it is read: for scripts, as
'chubbyctl tree' is for people. --timeout is for each directory then.`,
		Example: "  chubbyctl ls -l /ls/local\n  chubbyctl ls -R svc | grep -v '/$'",
		RunE: g.onPath(func(cmd *cobra.Command, p api.Path) error {
			if tree {
				return g.listTree(cmd, p, long)
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
			return g.printList(cmd.OutOrStdout(), nodes, long)
		}),
	}
	cmd.Flags().BoolVarP(&long, "long", "l", false, "with kind, size and generations")
	cmd.Flags().BoolVarP(&tree, "recursive", "R", false, "everything below the directory, with whole paths")
	return cmd
}

// listTree lists a directory's subtree while it reads it.
func (g *globals) listTree(cmd *cobra.Command, p api.Path, long bool) error {
	out := cmd.OutOrStdout()
	style := term.StyleOf(out)
	whole := func(s api.Stat) string { return strings.TrimSuffix(s.Path.String(), s.Path.Base()) + label(s) }
	t := g.output.NewTable(out, longColumns()...)
	err := g.withTree(cmd, p, "", func(ctx context.Context, w *treeWalk) error {
		root, err := w.statOf(ctx, p)
		if err != nil {
			return err
		}
		return w.visit(ctx, root, treeVisitor{enter: func(s api.Stat) error {
			switch {
			case s.Path == p && s.Kind == api.Directory:
				return nil
			case g.json():
				return w.print(newStatFields(s))
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

func (g *globals) printList(out io.Writer, nodes []api.Stat, long bool) error {
	list := term.List[api.Stat, any]{
		Fields: newStatFields, Add: func(t *term.Table, s api.Stat) { addLong(t, s, label(s)) }, Columns: longColumns(),
	}
	if long || g.json() {
		return list.PrintAll(out, g.output, nodes)
	}
	return g.output.Draw(out, func(p *term.Page) {
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

func label(s api.Stat) string {
	if s.Kind == api.Directory {
		return s.Path.Base() + "/"
	}
	return s.Path.Base()
}

func newTreeCommand(g *globals) *cobra.Command {
	var depth int
	cmd := &cobra.Command{
		Use:   "tree [PATH]",
		Short: "Show a directory and everything below it",
		Long: `tree shows a directory and everything below it, each part as it was when it was
read. With -o json it prints the fields of stat for each node. A directory that you may
not list is left out: tree says so, and exits with 1 when the rest is shown. --timeout is
for each directory.`,
		Example: "  chubbyctl tree /ls/local --depth 2",
		RunE: g.onPath(func(cmd *cobra.Command, p api.Path) error {
			if depth < 1 {
				return usagef("--depth %d: want 1 or more", depth)
			}
			return g.drawTree(cmd, p, depth)
		}),
	}
	cmd.Flags().IntVar(&depth, "depth", api.MaxDepth, "how many levels to show")
	return cmd
}

// drawTree prints a subtree while it reads it, up to a depth.
func (g *globals) drawTree(cmd *cobra.Command, p api.Path, depth int) error {
	out := cmd.OutOrStdout()
	style := term.StyleOf(out)
	levels := func(p api.Path) int { return strings.Count(string(p.Name()), "/") }
	var below []string // the prefix of a node's branch, for each level above
	return g.withTree(cmd, p, "", func(ctx context.Context, w *treeWalk) error {
		root, err := w.statOf(ctx, p)
		if err != nil {
			return err
		}
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
			err := w.print(newStatFields(s))
			if !g.json() {
				_, err = fmt.Fprintln(out, style.Name(text))
			}
			if err == nil && level == depth {
				err = errSkip
			}
			return err
		}})
	})
}
