package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// treeCopy is a cp -r that goes on.
type treeCopy struct {
	from, to *treeWalk // one and the same if both paths are in one cell
	tally    *treeTally
	out      io.Writer
	ifAbsent bool
}

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
	return g.withTree(cmd.Context(), from, func(ctx context.Context, source *treeWalk) error {
		root, err := source.stat(ctx, from)
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
			c := &treeCopy{from: source, to: target, tally: g.newTreeTally(cmd.ErrOrStderr(), "copied"), out: cmd.OutOrStdout(), ifAbsent: o.ifAbsent}
			return c.tally.finish(source.visit(ctx, root, treeVisitor{
				enter: func(s api.Stat) error { return c.copyNode(ctx, s, moved(s.Path, from, to)) },
				fail:  func(s api.Stat, err error) error { c.tally.leave(s.Path, explanation(err)); return nil },
			}))
		}
		if from.Cell() == to.Cell() {
			return copyTo(ctx, source)
		}
		return g.withTree(ctx, to, copyTo)
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
func (c *treeCopy) copyNode(ctx context.Context, s api.Stat, target string) error {
	if s.Ephemeral {
		c.tally.leave(s.Path, isEphemeral)
		return errSkip
	}
	to, err := api.ParsePath(target)
	if err != nil {
		c.tally.leave(s.Path, explanation(err)) // it would be too long, or too deep
		return errSkip
	}
	var contents []byte
	if s.Kind == api.File {
		err = c.from.with(ctx, s.Path, client.OpenOptions{Read: true, Kind: api.File}, func(ctx context.Context, h *client.Handle) (err error) {
			contents, _, err = h.Contents(ctx)
			return err
		})
	}
	switch code := api.CodeOf(err); {
	case code == api.NotFound, code == api.HandleClosed, code == api.IsDirectory:
		return errSkip // it was deleted meanwhile, or replaced
	case code == api.PermissionDenied:
		c.tally.leave(s.Path, explanation(err))
		return errSkip
	case err != nil:
		return err
	}
	err = c.to.put(ctx, to, s.Kind, contents, c.ifAbsent)
	switch code := api.CodeOf(err); {
	case code == api.Exists, code == api.PermissionDenied, code == api.IsDirectory, code == api.NotDirectory:
		c.tally.leave(s.Path, explanation(err))
		return errSkip
	case err != nil:
		return err
	}
	c.tally.count()
	if c.to.g.json() {
		return c.to.g.output.Print(c.out, copiedFields{target, s.Path.String()})
	}
	return nil
}

// put creates a directory, or writes a file, which it creates if it is absent.
func (w *treeWalk) put(ctx context.Context, p api.Path, kind api.Kind, contents []byte, ifAbsent bool) error {
	opts := client.OpenOptions{Write: true, Kind: kind, Create: client.File, Contents: contents}
	switch {
	case kind == api.Directory:
		opts = client.OpenOptions{Read: true, Kind: kind, Create: client.Directory}
	case ifAbsent:
		opts.Create = client.NewFile
	}
	err := w.with(ctx, p, opts, func(ctx context.Context, h *client.Handle) error {
		if kind == api.Directory || h.Created() {
			return nil
		}
		_, err := h.SetContents(ctx, contents)
		return err
	})
	return withAdvice(err, p, opts.Create)
}
