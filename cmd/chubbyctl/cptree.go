package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
)

// mayBeInside reports whether a path may be at or below another one, or above it: a cell that is
// called local has another name, too.
func mayBeInside(a, b api.Path) bool {
	below := func(a, b api.Path) bool { return strings.HasPrefix(string(a.Name())+"/", string(b.Name())+"/") }
	sameCell := a.Cell() == b.Cell() || a.Cell() == api.LocalCell || b.Cell() == api.LocalCell
	return sameCell && (below(a, b) || below(b, a))
}

// copyTree copies a directory and everything below it.
func (o *copyOptions) copyTree(cmd *cobra.Command, from, to api.Path) error {
	g := o.put.globals
	return g.withTree(cmd, from, "copied", func(ctx context.Context, w *treeWalk) error {
		root, err := w.stat(ctx, from)
		if err != nil {
			return err
		}
		if to, err = o.targetOf(ctx, from, to); err != nil {
			return err
		}
		switch {
		case mayBeInside(from, to):
			return usagef("cp -r: %v and %v may be one inside the other; nothing was done", from, to)
		case to.Name() == api.ACLDir, isList(to):
			return usagef("cp -r: %v is for access control lists, which are written one by one: 'chubbyctl acl file put NAME'", to)
		}
		copyTo := func(ctx context.Context, target *treeWalk) error {
			return w.visit(ctx, root, treeVisitor{lasting: true, enter: func(s api.Stat) error { return o.copyNode(ctx, w, target, s, moved(s.Path, from, to)) }})
		}
		if from.Cell() == to.Cell() {
			return copyTo(ctx, w)
		}
		return (&treeWalk{g: g}).inCell(ctx, to, copyTo)
	})
}

// moved returns where a node at or below from is, if from is moved to another path.
func moved(p, from, to api.Path) string {
	return to.String() + strings.TrimPrefix(string(p.Name()), string(from.Name()))
}

type copiedFields struct {
	Path string `json:"path"`
	From string `json:"from"`
}

// copyNode copies one node. What must not be read or replaced is left out, and the rest goes on.
func (o *copyOptions) copyNode(ctx context.Context, from, to *treeWalk, s api.Stat, target string) error {
	p, err := api.ParsePath(target)
	if err != nil {
		return from.leaveFor(s.Path, err, api.CodeOf(err)) // it would be too long, or too deep
	}
	contents, err := from.contents(ctx, s)
	if err != nil {
		return err
	}
	if err := to.put(ctx, p, s.Kind, contents, o.ifAbsent); err != nil {
		return from.leaveFor(s.Path, err, api.Exists, api.PermissionDenied, api.IsDirectory, api.NotDirectory)
	}
	return from.count(copiedFields{target, s.Path.String()})
}
