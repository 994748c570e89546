package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

type copyOptions struct {
	put      putOptions
	ifAbsent bool
	tree     bool // --recursive
}

func copyVerb(g *globals, cmd *cobra.Command) {
	o := &copyOptions{put: putOptions{globals: g}}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, err := g.parsePath(args[0])
		if err != nil {
			return err
		}
		to, err := g.parsePath(args[1])
		if err != nil {
			return err
		}
		if err := o.validate(cmd); err != nil {
			return err
		}
		if o.tree {
			return o.copyTree(cmd, from, to)
		}
		return o.copyFile(cmd, from, to)
	}
	cmd.Flags().BoolVarP(&o.tree, "recursive", "r", false, "copy a directory with everything below it")
	cmd.Flags().BoolVar(&o.ifAbsent, "if-absent", false, "write only if there is no such file")
	cmd.Flags().Uint64Var(&o.put.ifGeneration, "if-generation", 0, "write only if the contents of DST are at generation `G`; 0: only if there is no such file")
	o.put.sequencer.flag(cmd, "write")
	o.put.consent.flag(cmd)
	keepApart(cmd.Flags(), "recursive", "it copies many files, and the other is about one", "if-generation", "if-sequencer")
	keepApart(cmd.Flags(), "if-absent", "it creates a file, and the other is about one that is there", "if-generation")
}

func (o *copyOptions) validate(cmd *cobra.Command) error {
	if o.ifAbsent {
		o.put.conditional = true // at generation 0
		return nil
	}
	return o.put.validate(cmd)
}

func (o *copyOptions) copyFile(cmd *cobra.Command, from, to api.Path) error {
	contents, _, err := o.put.readContents(cmd.Context(), from)
	if err != nil {
		return err
	}
	if to, err = o.targetOf(cmd.Context(), from, to); err != nil {
		return err
	}
	if from == to {
		return usagef("cp: %v is the file itself; nothing was done", to)
	}
	return o.put.writeFile(cmd, to, contents)
}

// targetOf returns the file to write: to, or, in a directory, the file with from's name.
func (o *copyOptions) targetOf(ctx context.Context, from, to api.Path) (api.Path, error) {
	kind := api.Directory // the root is one even if unreadable
	if !to.IsRoot() {
		stat, err := readNode(ctx, o.put.globals, to, (*client.Client).Stat)
		if code := api.CodeOf(err); code == api.NotFound || code == api.PermissionDenied {
			return to, nil // a new file, or one that is writable and unreadable
		} else if err != nil {
			return to, err
		}
		kind = stat.Kind
	}
	if kind != api.Directory {
		return to, nil
	}
	return to.Join(from.Base())
}

// mayBeInside reports whether one path may be at or below the other: a cell called local has another name, too.
func mayBeInside(a, b api.Path) bool {
	below := func(a, b api.Path) bool { return strings.HasPrefix(string(a.Name())+"/", string(b.Name())+"/") }
	sameCell := a.Cell() == b.Cell() || a.Cell() == api.LocalCell || b.Cell() == api.LocalCell
	return sameCell && (below(a, b) || below(b, a))
}

func (o *copyOptions) copyTree(cmd *cobra.Command, from, to api.Path) error {
	g := o.put.globals
	return g.overTree(cmd, from, "copied", func(ctx context.Context, w *treeWalk, root api.Stat) error {
		to, err := o.targetOf(ctx, from, to)
		if err != nil {
			return err
		}
		switch {
		case mayBeInside(from, to):
			return usagef("cp -r: %v and %v may be one inside the other; nothing was done", from, to)
		case to.Name() == api.ACLDir, isList(to):
			return usagef("cp -r: %v is for access control lists, which are written one by one: 'chubbyctl acl file put NAME'", to)
		}
		copyTo := func(ctx context.Context, target *treeWalk) error {
			copyOne := func(s api.Stat) error { return o.copyNode(ctx, w, target, s, moved(s.Path, from, to)) }
			return w.visit(ctx, root, treeVisitor{lasting: true, enter: copyOne})
		}
		if from.Cell() == to.Cell() {
			return copyTo(ctx, w)
		}
		return (&treeWalk{g: g}).inCell(ctx, to, copyTo)
	})
}

// moved returns the new path of a node at or below from, if from moves to to.
func moved(p, from, to api.Path) string {
	return to.String() + strings.TrimPrefix(string(p.Name()), string(from.Name()))
}

type copiedFields struct {
	Path string `json:"path"`
	From string `json:"from"`
}

// copyNode copies one node. It skips nodes that it must not read or replace.
func (o *copyOptions) copyNode(ctx context.Context, from, to *treeWalk, s api.Stat, target string) error {
	p, err := api.ParsePath(target)
	if err != nil {
		return from.leaveFor(s.Path, err, api.CodeOf(err)) // too long, or too deep
	}
	contents, err := from.contentsOf(ctx, s)
	if err != nil {
		return err
	}
	if err := to.put(ctx, p, s.Kind, contents, o.ifAbsent); err != nil {
		return from.leaveFor(s.Path, err, api.Exists, api.PermissionDenied, api.IsDirectory, api.NotDirectory)
	}
	return from.count(copiedFields{target, s.Path.String()})
}
