package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// treePage is how many children of a directory are asked for, and kept, at once.
const treePage = 200

// errSkip is returned by enter of a treeVisitor to leave out what is below a directory.
var errSkip = errors.New("what is below it is left out")

// treeWalk visits what is at and below a path, in one session. It keeps a page of each
// directory on the way to where it is, and no more.
type treeWalk struct {
	g      *globals
	client *client.Client
}

// treeVisitor is what is done at each node. Its functions may be nil.
type treeVisitor struct {
	enter func(api.Stat) error        // before what is below a directory
	leave func(api.Stat) error        // after it
	fail  func(api.Stat, error) error // a directory cannot be listed; without it, that ends the walk
}

// withTree runs f with a session for a tree. --timeout bounds each call, and not the whole, which
// may be long.
func (g *globals) withTree(ctx context.Context, p api.Path, f func(context.Context, *treeWalk) error) error {
	var c *client.Client
	err := g.withReport(ctx, p.Cell(), p, func(ctx context.Context) (err error) {
		c, err = client.New(ctx, g.config(p.Cell()))
		return err
	})
	if err != nil {
		return err
	}
	defer g.closeSession(ctx, c)
	return f(ctx, &treeWalk{g, c})
}

// call makes one call, or a few, about a node, within --timeout.
func (w *treeWalk) call(ctx context.Context, p api.Path, f func(context.Context) error) error {
	return w.g.withReport(ctx, p.Cell(), p, f)
}

// stat returns the metadata of a node.
func (w *treeWalk) stat(ctx context.Context, p api.Path) (stat api.Stat, err error) {
	err = w.with(ctx, p, client.OpenOptions{Read: true}, func(ctx context.Context, h *client.Handle) (err error) {
		stat, err = h.Stat(ctx)
		return err
	})
	return stat, err
}

// with runs f with an open node, and closes it.
func (w *treeWalk) with(ctx context.Context, p api.Path, opts client.OpenOptions, f func(context.Context, *client.Handle) error) error {
	return w.call(ctx, p, func(ctx context.Context) error {
		h, err := w.client.Open(ctx, p.String(), opts)
		if err != nil {
			return err
		}
		defer func() { _ = h.Close(ctx) }() // if that fails, the end of the session closes it
		return f(ctx, h)
	})
}

// visit visits a node, and what is below it, in the order of names. What is deleted meanwhile is not
// there; of what is created meanwhile some may be visited.
func (w *treeWalk) visit(ctx context.Context, at api.Stat, v treeVisitor) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if v.enter != nil {
		if err := v.enter(at); errors.Is(err, errSkip) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if at.Kind == api.Directory {
		if gone, err := w.visitChildren(ctx, at, v); gone || err != nil {
			return err
		}
	}
	if v.leave == nil {
		return nil
	}
	return v.leave(at)
}

// visitChildren visits what is in a directory. gone says that the directory is not to be left: it is not there any
// more, or cannot be listed.
func (w *treeWalk) visitChildren(ctx context.Context, at api.Stat, v treeVisitor) (gone bool, err error) {
	var h *client.Handle
	err = w.call(ctx, at.Path, func(ctx context.Context) (err error) {
		h, err = w.client.Open(ctx, at.Path.String(), client.OpenOptions{Read: true, Kind: api.Directory})
		return err
	})
	switch {
	case api.CodeOf(err) == api.NotFound:
		return true, nil
	case api.CodeOf(err) == api.PermissionDenied && v.fail != nil:
		return true, v.fail(at, err)
	case err != nil:
		return true, err
	}
	defer func() { _ = h.Close(ctx) }() // if that fails, the end of the session closes it
	for after, more := "", true; more; {
		var page []api.Stat
		err := w.call(ctx, at.Path, func(ctx context.Context) (err error) {
			page, more, err = h.ReadDirPage(ctx, after, treePage)
			return err
		})
		if api.CodeOf(err) == api.HandleClosed {
			return true, nil
		}
		if err != nil {
			return true, err
		}
		for _, child := range page {
			if err := w.visit(ctx, child, v); err != nil {
				return true, err
			}
			after = child.Path.Base()
		}
	}
	return false, nil
}

// treeTally counts what was done with a tree, and says how much that is when it takes long.
type treeTally struct {
	g     *globals
	err   io.Writer // for notices
	did   string    // "deleted"
	watch func() time.Duration
	told  time.Duration
	done  int
	left  int // what was left out, with a reason
}

func (g *globals) newTreeTally(err io.Writer, did string) *treeTally {
	return &treeTally{g: g, err: err, did: did, watch: stopwatch()}
}

// count counts a node.
func (t *treeTally) count() {
	t.done++
	if now := t.watch(); now-t.told >= term.Patience {
		t.told = now
		t.g.notice(t.err, fmt.Sprintf("%s %s so far", t.did, term.Counted(t.done, "node")))
	}
}

// maxLeftTold bounds how many nodes that are left out are told one by one.
const maxLeftTold = 20

// leave counts a node that is left out, and says why.
func (t *treeTally) leave(p api.Path, why string) {
	t.left++
	switch {
	case t.left <= maxLeftTold:
		t.g.notice(t.err, fmt.Sprintf("left out: %v: %s", p, why))
	case t.left == maxLeftTold+1:
		t.g.notice(t.err, "left out: others, which are counted at the end")
	}
}

// finish returns the error of the whole, with what was done until then.
func (t *treeTally) finish(err error) error {
	what := term.Counted(t.done, "node")
	switch {
	case err != nil && t.done > 0:
		t.g.notice(t.err, fmt.Sprintf("%s %s before that", t.did, what))
		return afterSteps(true, err)
	case err != nil:
		return err
	case t.left > 0:
		return &exitError{exitFailed, fmt.Errorf("%s %s; %s left out, for the reasons above", t.did, what, counted(t.left))}
	case t.g.verbose:
		t.g.notice(t.err, fmt.Sprintf("%s %s", t.did, what))
	}
	return nil
}

// counted says how many nodes there were: "1 was", "3 were".
func counted(n int) string {
	if n == 1 {
		return "1 was"
	}
	return fmt.Sprintf("%d were", n)
}
