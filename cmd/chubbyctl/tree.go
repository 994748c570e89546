package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// treePage is how many children are requested, and kept, at once.
const treePage = 200

// errSkip, from a treeVisitor's enter, skips a directory's contents.
var errSkip = errors.New("what is below it is left out")

// isEphemeral is why an ephemeral node is skipped.
const isEphemeral = "it is ephemeral, belongs to a session, and goes with it"

// treeWalk visits a subtree in one session. It keeps one page of each directory on its path. It counts its work
// and reports it when it takes long, and reports what it skipped, and why.
type treeWalk struct {
	g        *globals
	client   *client.Client
	out, err io.Writer
	did      string // the verb for the nodes, "deleted"; "": not reported
	keptLine func(p api.Path, why string) any

	watch func() time.Duration
	told  time.Duration
	done  int
	left  int  // skipped, with a reason
	last  bool // the visited node is the last in its directory
}

// treeVisitor has the functions for each node. They may be nil.
type treeVisitor struct {
	lasting bool                        // skip ephemeral nodes
	enter   func(api.Stat) error        // before a directory's contents
	leave   func(api.Stat) error        // after them
	fail    func(api.Stat, error) error // for an unlistable directory; without it, it is skipped
}

// withTree runs f with a session for a tree, whose nodes it processes (did: "deleted"). --timeout limits each
// call, not the whole, which may be long. The error says what was skipped, or done before.
func (g *globals) withTree(cmd *cobra.Command, p api.Path, did string, f func(context.Context, *treeWalk) error) error {
	w := &treeWalk{g: g, out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), did: did, watch: stopwatch()}
	return w.finish(w.inCell(cmd.Context(), p, f))
}

// overTree is withTree for a tree that is there.
func (g *globals) overTree(cmd *cobra.Command, p api.Path, did string, f func(context.Context, *treeWalk, api.Stat) error) error {
	return g.withTree(cmd, p, did, func(ctx context.Context, w *treeWalk) error {
		var root api.Stat
		err := w.call(ctx, p, func(ctx context.Context) (err error) {
			root, err = w.client.Stat(ctx, p.String())
			return err
		})
		if err != nil {
			return err
		}
		return f(ctx, w, root)
	})
}

func (w *treeWalk) inCell(ctx context.Context, p api.Path, f func(context.Context, *treeWalk) error) error {
	err := w.call(ctx, p, func(ctx context.Context) (err error) {
		w.client, err = client.New(ctx, w.g.config(p.Cell()))
		return err
	})
	if err != nil {
		return err
	}
	defer w.g.closeSession(ctx, w.client)
	return f(ctx, w)
}

// call makes one or a few calls about a node, within --timeout.
func (w *treeWalk) call(ctx context.Context, p api.Path, f func(context.Context) error) error {
	return w.g.withReport(ctx, p.Cell(), p, f)
}

// contentsOf returns a node's contents; nil for a directory. errSkip says that it was deleted or replaced
// meanwhile, or is unreadable and skipped.
func (w *treeWalk) contentsOf(ctx context.Context, s api.Stat) (contents []byte, err error) {
	if s.Kind == api.Directory {
		return nil, nil
	}
	err = w.call(ctx, s.Path, func(ctx context.Context) (err error) {
		contents, _, err = w.client.Get(ctx, s.Path.String())
		return err
	})
	switch api.CodeOf(err) {
	case api.NotFound, api.HandleClosed, api.IsDirectory:
		return nil, errSkip
	}
	return contents, w.leaveFor(s.Path, err, api.PermissionDenied)
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

// put creates a directory, or writes a file, which it creates if absent.
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

// visit visits a subtree in the order of names. It omits nodes deleted meanwhile; it may visit some created
// meanwhile.
func (w *treeWalk) visit(ctx context.Context, at api.Stat, v treeVisitor) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if at.Ephemeral && v.lasting {
		return w.leave(at.Path, isEphemeral)
	}
	if v.enter != nil {
		if err := v.enter(at); err != nil {
			return unlessSkipped(err)
		}
	}
	if at.Kind == api.Directory {
		if err := w.visitChildren(ctx, at, v); err != nil {
			return unlessSkipped(err)
		}
	}
	if v.leave == nil {
		return nil
	}
	return v.leave(at)
}

func unlessSkipped(err error) error {
	if errors.Is(err, errSkip) {
		return nil
	}
	return err
}

// visitChildren visits a directory's children. errSkip says not to call leave: the directory is gone or
// unlistable.
func (w *treeWalk) visitChildren(ctx context.Context, at api.Stat, v treeVisitor) error {
	var h *client.Handle
	err := w.call(ctx, at.Path, func(ctx context.Context) (err error) {
		h, err = w.client.Open(ctx, at.Path.String(), client.OpenOptions{Read: true, Kind: api.Directory})
		return err
	})
	switch code := api.CodeOf(err); {
	case code == api.NotFound:
		return errSkip
	case code == api.PermissionDenied && v.fail != nil:
		return v.fail(at, err)
	case err != nil:
		return w.leaveFor(at.Path, err, api.PermissionDenied)
	}
	defer func() { _ = h.Close(ctx) }() // if that fails, the end of the session closes it
	for after, more := "", true; more; {
		var page []api.Stat
		err := w.call(ctx, at.Path, func(ctx context.Context) (err error) {
			page, more, err = h.ReadDirPage(ctx, after, treePage)
			return err
		})
		if api.CodeOf(err) == api.HandleClosed {
			return errSkip
		}
		if err != nil {
			return err
		}
		for i, child := range page {
			w.last = i == len(page)-1 && !more
			if err := w.visit(ctx, child, v); err != nil {
				return err
			}
			after = child.Path.Base()
		}
	}
	return nil
}

// countNode counts a processed node, and prints it for programs.
func (w *treeWalk) countNode(line any) error {
	w.done++
	if now := w.watch(); now-w.told >= term.Patience {
		w.told = now
		w.g.notice(w.err, fmt.Sprintf("%s %s so far", w.did, term.Counted(w.done, "node")))
	}
	return w.print(line)
}

// print prints a line for programs; nothing for nil.
func (w *treeWalk) print(line any) error {
	if line == nil || !w.g.json() {
		return nil
	}
	return w.g.output.Print(w.out, line)
}

// maxLeftTold limits how many skipped nodes are named.
const maxLeftTold = 20

// leave counts a skipped node, and says why.
func (w *treeWalk) leave(p api.Path, why string) error {
	w.left++
	switch {
	case w.left <= maxLeftTold:
		w.g.notice(w.err, fmt.Sprintf("left out: %v: %s", p, why))
	case w.left == maxLeftTold+1:
		w.g.notice(w.err, "left out: others, which are counted at the end")
	}
	if w.keptLine == nil {
		return nil
	}
	return w.print(w.keptLine(p, why))
}

// leaveFor skips a node if an error has one of some codes, and then returns errSkip; otherwise it returns the
// error.
func (w *treeWalk) leaveFor(p api.Path, err error, codes ...api.Code) error {
	if err == nil || !slices.Contains(codes, api.CodeOf(err)) {
		return err
	}
	why := explanation(err)
	if e := (*api.Error)(nil); errors.As(err, &e) && e.Code == api.LockHeld && len(e.Holders) > 0 {
		why = "its lock is " + heldBy(e.Holders)
	}
	if err := w.leave(p, why); err != nil {
		return err
	}
	return errSkip
}

// finish returns the error of the whole, with what was done before.
func (w *treeWalk) finish(err error) error {
	what := fmt.Sprintf("%s %s", w.did, term.Counted(w.done, "node"))
	switch {
	case err != nil && w.done > 0:
		w.g.notice(w.err, what+" before that")
		return afterSteps(true, err)
	case err != nil:
		return err
	case w.left > 0:
		left := fmt.Errorf("%s left out, for the reasons above", map[bool]string{true: "1 was", false: fmt.Sprint(w.left, " were")}[w.left == 1])
		if w.did != "" {
			left = fmt.Errorf("%s; %w", what, left)
		}
		return &exitError{exitFailed, left}
	case w.g.verbose && w.did != "":
		w.g.notice(w.err, what)
	}
	return nil
}

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
		contents, _, err := g.readContents(cmd.Context(), from)
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

func (o *copyOptions) copyTree(cmd *cobra.Command, from, to api.Path) error {
	g := o.put.globals
	return g.overTree(cmd, from, "copied", func(ctx context.Context, w *treeWalk, root api.Stat) error {
		to, err := o.targetOf(ctx, from, to)
		if err != nil {
			return err
		}
		below := func(a, b api.Path) bool { return strings.HasPrefix(string(a.Name())+"/", string(b.Name())+"/") }
		sameCell := from.Cell() == to.Cell() || from.Cell() == api.LocalCell || to.Cell() == api.LocalCell // local has another name, too
		switch {
		case sameCell && (below(from, to) || below(to, from)):
			return usagef("cp -r: %v and %v may be one inside the other; nothing was done", from, to)
		case to.Name() == api.ACLDir, isList(to):
			return usagef("cp -r: %v is for access control lists, which are written one by one: 'chubbyctl acl file put NAME'", to)
		}
		copyTo := func(ctx context.Context, target *treeWalk) error {
			copyOne := func(s api.Stat) error {
				return o.copyNode(ctx, w, target, s, to.String()+strings.TrimPrefix(string(s.Path.Name()), string(from.Name())))
			}
			return w.visit(ctx, root, treeVisitor{lasting: true, enter: copyOne})
		}
		if from.Cell() == to.Cell() {
			return copyTo(ctx, w)
		}
		return (&treeWalk{g: g}).inCell(ctx, to, copyTo)
	})
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
	return from.countNode(term.Fields{"path", target, "from", s.Path.String()})
}
