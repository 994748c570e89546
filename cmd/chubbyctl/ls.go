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
				stat, err := c.Stat(ctx, path)
				if err != nil || stat.Kind == api.File {
					return []api.Stat{stat}, err // of a file it is the file itself
				}
				return c.List(ctx, path)
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

// listTree lists what is below a directory, as it is read.
func (g *globals) listTree(cmd *cobra.Command, p api.Path, long bool) error {
	out := cmd.OutOrStdout()
	style := term.StyleOf(out)
	whole := func(s api.Stat) string { return strings.TrimSuffix(s.Path.String(), s.Path.Base()) + label(s) }
	t := g.output.NewTable(out, longColumns()...)
	err := g.withTree(cmd.Context(), p, func(ctx context.Context, w *treeWalk) error {
		root, err := w.stat(ctx, p)
		if err != nil {
			return err
		}
		tally := g.newTreeTally(cmd.ErrOrStderr(), "listed")
		err = w.visit(ctx, root, treeVisitor{
			enter: func(s api.Stat) error {
				switch {
				case s.Path == p && s.Kind == api.Directory:
					return nil
				case g.json():
					return g.output.Print(out, newStatFields(s))
				case long:
					addLong(t, s, whole(s))
					return nil
				}
				_, err := fmt.Fprintln(out, style.Name(whole(s)))
				return err
			},
			fail: func(s api.Stat, err error) error { tally.leave(s.Path, explanation(err)); return nil },
		})
		if err == nil && tally.left > 0 {
			err = &exitError{exitFailed, fmt.Errorf("%s left out, for the reasons above", counted(tally.left))}
		}
		return err
	})
	if long && !g.json() {
		err = errors.Join(err, t.Flush())
	}
	return err
}

func (g *globals) printList(out io.Writer, nodes []api.Stat, long bool) error {
	list := term.List[api.Stat, any]{Fields: newStatFields, Add: func(t *term.Table, s api.Stat) { addLong(t, s, label(s)) }, Columns: longColumns()}
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

// addLong adds the row of a node in a long listing.
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

// label is a node's name in a listing.
func label(s api.Stat) string {
	if s.Kind == api.Directory {
		return s.Path.Base() + "/"
	}
	return s.Path.Base()
}

type treeOptions struct {
	*globals
	depth int
}

func newTreeCommand(g *globals) *cobra.Command {
	o := &treeOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "tree [PATH]",
		Short: "Show a directory and everything below it",
		Long: `tree shows a directory and everything below it, each part as it was when it was
read. With -o json it prints the fields of stat for each node.`,
		Example: "  chubbyctl tree /ls/local --depth 2",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := g.pathOf(args)
			if err != nil {
				return err
			}
			if o.depth < 1 {
				return usagef("--depth %d: want 1 or more", o.depth)
			}
			return g.withSession(cmd.Context(), p.Cell(), func(ctx context.Context, c *client.Client) error {
				return o.printTree(ctx, c, p, cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().IntVar(&o.depth, "depth", api.MaxDepth, "how many levels to show")
	return cmd
}

func (o *treeOptions) printTree(ctx context.Context, c *client.Client, p api.Path, out io.Writer) error {
	h, err := c.Open(ctx, p.String(), client.OpenOptions{Read: true})
	if err != nil {
		return err
	}
	stat, err := h.Stat(ctx)
	if err != nil {
		return err
	}
	if err := o.printNode(out, stat, p.String()); err != nil {
		return err
	}
	return o.walk(ctx, c, stat, "", o.depth, out)
}

func (o *treeOptions) printNode(out io.Writer, s api.Stat, text string) error {
	if o.json() {
		return o.output.Print(out, newStatFields(s))
	}
	_, err := fmt.Fprintln(out, term.StyleOf(out).Name(text))
	return err
}

// walk prints what is below a node, each line after indent. A directory that is deleted
// meanwhile has nothing below it.
func (o *treeOptions) walk(ctx context.Context, c *client.Client, node api.Stat, indent string, depth int, out io.Writer) error {
	if node.Kind != api.Directory || depth == 0 {
		return nil
	}
	h, err := c.Open(ctx, node.Path.String(), client.OpenOptions{Read: true, Kind: api.Directory})
	if api.CodeOf(err) == api.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	children, err := h.ReadDir(ctx)
	if err != nil && api.CodeOf(err) != api.HandleClosed {
		return err
	}
	if err := h.Close(ctx); err != nil && api.CodeOf(err) != api.HandleClosed {
		return err
	}
	for i, child := range children {
		branch, below := "├── ", "│   "
		if i == len(children)-1 {
			branch, below = "└── ", "    "
		}
		if err := o.printNode(out, child, indent+branch+label(child)); err != nil {
			return err
		}
		if err := o.walk(ctx, c, child, indent+below, depth-1, out); err != nil {
			return err
		}
	}
	return nil
}
