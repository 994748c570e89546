package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func lsVerb(g *globals, cmd *cobra.Command) {
	var long, tree bool
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
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
	})
	cmd.Flags().BoolVarP(&long, "long", "l", false, "with kind, size and generations")
	cmd.Flags().BoolVarP(&tree, "recursive", "R", false, "everything below the directory, with whole paths")
}

// listTree lists a directory's subtree while it reads it.
func (g *globals) listTree(cmd *cobra.Command, p api.Path, long bool) error {
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

func treeVerb(g *globals, cmd *cobra.Command) {
	var depth int
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
		if depth < 1 {
			return usagef("--depth %d: want 1 or more", depth)
		}
		return g.drawTree(cmd, p, depth)
	})
	cmd.Flags().IntVar(&depth, "depth", api.MaxDepth, "how many levels to show")
}

// drawTree prints a subtree while it reads it, up to a depth.
func (g *globals) drawTree(cmd *cobra.Command, p api.Path, depth int) error {
	out := cmd.OutOrStdout()
	style := term.StyleOf(out)
	levels := func(p api.Path) int { return strings.Count(string(p.Name()), "/") }
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

// statFields is a node's metadata, for -o json. For a node that the caller may not read it is withheldFields.
type statFields struct {
	Path              string         `json:"path"`
	Kind              string         `json:"kind"`
	Ephemeral         bool           `json:"ephemeral"`
	Instance          api.Generation `json:"instance"`
	ContentGeneration api.Generation `json:"content_generation"`
	LockGeneration    api.Generation `json:"lock_generation"`
	ACLGeneration     api.Generation `json:"acl_generation"`
	Checksum          string         `json:"checksum"` // hexadecimal: a JSON number is inexact for 64 bits
	Size              int            `json:"size"`
	Children          int            `json:"children"`
	ACL               api.ACL        `json:"acl"`
	Modified          *time.Time     `json:"modified"` // null: unknown
}

// withheldFields is the visible part of an unreadable node. After the caller's own change it also has the
// written fields.
type withheldFields struct {
	Path              string         `json:"path"`
	Kind              string         `json:"kind"`
	Ephemeral         bool           `json:"ephemeral"`
	Withheld          bool           `json:"withheld"` // true
	Instance          api.Generation `json:"instance,omitempty"`
	ContentGeneration api.Generation `json:"content_generation,omitempty"`
	Checksum          string         `json:"checksum,omitempty"`
	Size              *int           `json:"size,omitempty"`
	Modified          *time.Time     `json:"modified,omitempty"`
	ACLGeneration     api.Generation `json:"acl_generation,omitempty"`
	ACL               *api.ACL       `json:"acl,omitempty"`
}

func newStatFields(s api.Stat) any {
	if s.Withheld {
		f := withheldFields{
			Path: s.Path.String(), Kind: s.Kind.String(), Ephemeral: s.Ephemeral, Withheld: true, Instance: s.Instance, ContentGeneration: s.Content, Modified: timestamp(s.ModifiedUnix),
		}
		if s.Content != 0 {
			f.Checksum, f.Size = fmt.Sprintf("%016x", s.Checksum), &s.Size
		}
		if s.ACLs != 0 {
			f.ACLGeneration, f.ACL = s.ACLs, &s.ACL
		}
		return f
	}
	return statFields{
		s.Path.String(), s.Kind.String(), s.Ephemeral, s.Instance, s.Content, s.Lock, s.ACLs,
		fmt.Sprintf("%016x", s.Checksum), s.Size, s.Children, s.ACL, timestamp(s.ModifiedUnix),
	}
}

// printChange prints a node after a change: for programs always, for people with -v.
func (g *globals) printChange(out, remarks io.Writer, did string, s api.Stat) error {
	text := fmt.Sprintf("%s %v", did, s.Path)
	if !s.Withheld {
		text += fmt.Sprintf(" (content generation %d, instance %d)", s.Content, s.Instance)
	}
	return g.did(out, remarks, newStatFields(s), "%s", text)
}

// printCreated is printChange for a node just opened with Create. If it existed before, it asks for the
// metadata, if they are printed.
func (g *globals) printCreated(ctx context.Context, out, remarks io.Writer, did string, h *client.Handle) error {
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

func statVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		first := true
		return g.eachPath(args, func(p api.Path) error {
			if !first && !g.json() {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			first = false
			stat, err := readNode(cmd.Context(), g, p, (*client.Client).Stat)
			if err != nil {
				return err
			}
			return g.printStat(cmd.OutOrStdout(), stat)
		})
	}
}

func (g *globals) printStat(out io.Writer, s api.Stat) error {
	kind, size, much := s.Kind.String(), "size", any(fmt.Sprintf("%d bytes, checksum %016x", s.Size, s.Checksum))
	if s.Ephemeral {
		kind = "ephemeral " + kind
	}
	if s.Kind == api.Directory {
		size, much = "children", s.Children
	}
	acl := fmt.Sprintf("read %s, write %s, change %s", term.OrDash(s.ACL.Read), term.OrDash(s.ACL.Write), term.OrDash(s.ACL.Change))
	return g.output.Show(out, newStatFields(s), func(p *term.Page) {
		p.Fields("path", s.Path, "kind", kind, size, much, "instance", s.Instance, "content generation", s.Content,
			"lock generation", s.Lock, "acl generation", s.ACLs, "modified", modifiedForPeople(s), "acl", acl)
	})
}

// modifiedForPeople says when contents were written: "2026-11-22 19:43:20 UTC (3m ago)".
func modifiedForPeople(s api.Stat) string {
	at := timestamp(s.ModifiedUnix)
	if at == nil {
		return "-"
	}
	return fmt.Sprintf("%s (%s ago)", at.Format("2006-01-02 15:04:05 MST"), term.Roughly(since(s.ModifiedUnix)))
}
