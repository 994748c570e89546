package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
)

// importOptions are those of import.
type importOptions struct {
	*globals
	overwrite bool
	names     bool // --acl
}

func newImportCommand(g *globals) *cobra.Command {
	o := &importOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "import PATH",
		Short: "Create what export has written, from standard input",
		Long: fmt.Sprintf(`import creates the nodes of an export, which it reads from standard input, at and below
PATH. The directory above PATH has to be there.

Nothing that is there is replaced: a file with other contents is left as it is, unless
--overwrite is given. So is what you may not write, and so are access control lists
(/ls/CELL/acl), which 'chubbyctl acl file put' writes. import says what it has left out,
and exits with %d when the rest is done. It exits with %d, too, at the first line that is
damaged, and at the end of an export that was cut. An import that ended so can be run
again: what is there already, with the same contents, counts as done.

ACL names are taken from the directory, as of any node that is created; with --acl those
of the export are set, of directories after what is in them. The lists have to be there.`, exitFailed, exitFailed),
		Example: `  chubbyctl import /ls/local/svc <svc.jsonl
  chubbyctl export /ls/old/svc | chubbyctl import /ls/new/svc --overwrite --acl`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: g.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := g.parsePath(args[0])
			if err != nil {
				return err
			}
			if p.Name() == api.ACLDir || isList(p) {
				return usagef("import: %v is for access control lists, which are written one by one: 'chubbyctl acl file put NAME'", p)
			}
			return o.importTree(cmd, p)
		},
	}
	cmd.Flags().BoolVar(&o.overwrite, "overwrite", false, "replace the contents of files that are there")
	cmd.Flags().BoolVar(&o.names, "acl", false, "set the ACL names of the export, too")
	return cmd
}

// importing is an import that goes on.
type importing struct {
	*importOptions
	*treeWalk
	tally *treeTally
	out   io.Writer
	root  api.Path
	open  []namedDirectory // directories whose names are set after what is in them: at most one on each level
}

type namedDirectory struct {
	path  api.Path
	names api.ACL
}

func (o *importOptions) importTree(cmd *cobra.Command, root api.Path) error {
	in := cmd.InOrStdin()
	if term.IsTerminal(in) {
		return usagef("import: it reads an export from standard input, as in 'chubbyctl import PATH <FILE'")
	}
	lines := newExportReader(in)
	if err := o.awaitFirst(cmd, lines); err != nil {
		return err
	}
	return o.withTree(cmd.Context(), root, func(ctx context.Context, w *treeWalk) error {
		i := &importing{importOptions: o, treeWalk: w, tally: o.newTreeTally(cmd.ErrOrStderr(), "imported"), out: cmd.OutOrStdout(), root: root}
		return i.tally.finish(i.run(ctx, lines))
	})
}

// awaitFirst reads the first line. One interrupt ends the process while it waits: nothing was sent yet, and the program that
// writes may never end.
func (o *importOptions) awaitFirst(cmd *cobra.Command, lines *exportReader) error {
	if _, waits := cmd.InOrStdin().(*os.File); waits && o.stop != nil {
		signal.Reset(supervise.Interrupts()...)
		defer o.catchInterrupts(cmd)
	}
	_, err := lines.next()
	return err
}

func (i *importing) run(ctx context.Context, lines *exportReader) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return i.closeDirectories(ctx, nil)
		}
		if err != nil {
			return err
		}
		text := strings.TrimSuffix(i.root.String()+"/"+line.Path, "/")
		p, err := api.ParsePath(text)
		if err == nil && line.Path != "" && line.Path[0] == '/' {
			err = api.Errorf(api.InvalidPath, "it begins with a slash")
		}
		if err != nil {
			return lines.fault("the path %q: %s", abridged(line.Path), explanation(err))
		}
		if err := i.closeDirectories(ctx, &p); err != nil {
			return err
		}
		if _, err := line.bytes(); err != nil {
			return lines.fault("the contents of %q are no base64: %v", abridged(line.Path), err)
		}
		if err := i.importNode(ctx, p, line); err != nil {
			return err
		}
	}
}

// importNode creates one node. What must not be written is left out, and the rest goes on.
func (i *importing) importNode(ctx context.Context, p api.Path, line exportLine) error {
	if p.Name() == api.ACLDir || isList(p) {
		i.tally.leave(p, "it is an access control list, or the directory of these")
		return nil
	}
	contents, _ := line.bytes() // which were looked at before
	kind := api.File
	if line.Kind == api.Directory.String() {
		kind = api.Directory
	}
	if p.IsRoot() && kind == api.Directory {
		i.tally.count()
		return nil // it is there
	}
	err := i.put(ctx, p, kind, contents, !i.overwrite)
	if api.CodeOf(err) == api.Exists && i.isSame(ctx, p, contents) {
		err = nil
	}
	if err == nil && i.names && line.ACL != nil {
		names := api.ACL(*line.ACL)
		if kind == api.Directory {
			i.open = append(i.open, namedDirectory{p, names})
		} else {
			err = afterSteps(true, i.setNames(ctx, p, names)) // the file is there
		}
	}
	switch code := api.CodeOf(err); {
	case code == api.Exists, code == api.PermissionDenied, code == api.IsDirectory, code == api.NotDirectory,
		code == api.InvalidArgument, code == api.NotFound && p != i.root:
		i.tally.leave(p, explanation(err))
		return nil
	case err != nil:
		return err
	}
	i.tally.count()
	if i.json() {
		return i.output.Print(i.out, map[string]string{"path": p.String()})
	}
	return nil
}

// isSame reports whether a file is there with that contents.
func (i *importing) isSame(ctx context.Context, p api.Path, contents []byte) bool {
	var found []byte
	err := i.with(ctx, p, client.OpenOptions{Read: true, Kind: api.File}, func(ctx context.Context, h *client.Handle) (err error) {
		found, _, err = h.Contents(ctx)
		return err
	})
	return err == nil && bytes.Equal(found, contents)
}

// closeDirectories sets the names of directories behind which the import is: those that next is not in;
// all without a next node.
func (i *importing) closeDirectories(ctx context.Context, next *api.Path) error {
	for len(i.open) > 0 {
		last := i.open[len(i.open)-1]
		if next != nil && strings.HasPrefix(next.String(), last.path.String()+"/") {
			return nil
		}
		i.open = i.open[:len(i.open)-1]
		err := i.setNames(ctx, last.path, last.names)
		switch code := api.CodeOf(err); {
		case code == api.PermissionDenied, code == api.NotFound, code == api.InvalidArgument:
			i.tally.leave(last.path, "its ACL names: "+explanation(err))
		case err != nil:
			return err
		}
	}
	return nil
}

// setNames sets the ACL names of a node, if they are others.
func (i *importing) setNames(ctx context.Context, p api.Path, names api.ACL) error {
	return i.with(ctx, p, client.OpenOptions{ChangeACL: true}, func(ctx context.Context, h *client.Handle) error {
		stat, err := h.Stat(ctx)
		if err != nil || stat.ACL == names {
			return err
		}
		_, err = h.SetACL(ctx, names)
		return err
	})
}
