package main

import (
	"bytes"
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
		RunE: g.onPath(func(cmd *cobra.Command, p api.Path) error {
			if p.Name() == api.ACLDir || isList(p) {
				return usagef("import: %v is for access control lists, which are written one by one: 'chubbyctl acl file put NAME'", p)
			}
			return o.importTree(cmd, p)
		}),
	}
	cmd.Flags().BoolVar(&o.overwrite, "overwrite", false, "replace the contents of files that are there")
	cmd.Flags().BoolVar(&o.names, "acl", false, "set the ACL names of the export, too")
	return cmd
}

type importing struct {
	*importOptions
	*treeWalk
	root api.Path
	open []namedDirectory // directories whose names are set after their contents: at most one a level
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
	return o.withTree(cmd, root, "imported", func(ctx context.Context, w *treeWalk) error {
		return (&importing{importOptions: o, treeWalk: w, root: root}).run(ctx, lines)
	})
}

// awaitFirst reads the first line. Meanwhile one interrupt ends the process: nothing was sent yet, and the
// writing program may never end.
func (o *importOptions) awaitFirst(cmd *cobra.Command, lines *exportReader) error {
	_, err := withDefaultInterrupts(o.globals, cmd, lines.next)
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

// importNode creates one node. It skips nodes that it must not write.
func (i *importing) importNode(ctx context.Context, p api.Path, line exportLine) error {
	if p.Name() == api.ACLDir || isList(p) {
		return i.leave(p, "it is an access control list, or the directory of these")
	}
	contents, _ := line.bytes() // checked before
	kind := api.File
	if line.Kind == api.Directory.String() {
		kind = api.Directory
	}
	if p.IsRoot() && kind == api.Directory {
		return i.count(nil) // it exists
	}
	err := i.put(ctx, p, kind, contents, !i.overwrite)
	if api.CodeOf(err) == api.Exists && i.isSame(ctx, p, contents) {
		err = nil
	}
	if err == nil && i.names && line.ACL != nil {
		names := *line.ACL
		if kind == api.Directory {
			i.open = append(i.open, namedDirectory{p, names})
		} else {
			err = afterSteps(true, i.setNames(ctx, p, names)) // the file exists
		}
	}
	if err == nil {
		return i.count(map[string]string{"path": p.String()})
	}
	passing := []api.Code{api.Exists, api.PermissionDenied, api.IsDirectory, api.NotDirectory, api.InvalidArgument}
	if p != i.root {
		passing = append(passing, api.NotFound)
	}
	return unlessSkipped(i.leaveFor(p, err, passing...))
}

func (i *importing) isSame(ctx context.Context, p api.Path, contents []byte) bool {
	var found []byte
	err := i.call(ctx, p, func(ctx context.Context) (err error) {
		found, _, err = i.client.Get(ctx, p.String())
		return err
	})
	return err == nil && bytes.Equal(found, contents)
}

// closeDirectories sets the names of finished directories: those that do not contain next; all without a next
// node.
func (i *importing) closeDirectories(ctx context.Context, next *api.Path) error {
	for len(i.open) > 0 {
		last := i.open[len(i.open)-1]
		if next != nil && strings.HasPrefix(next.String(), last.path.String()+"/") {
			return nil
		}
		i.open = i.open[:len(i.open)-1]
		err := i.setNames(ctx, last.path, last.names)
		switch api.CodeOf(err) {
		case api.PermissionDenied, api.NotFound, api.InvalidArgument:
			err = i.leave(last.path, "its ACL names: "+explanation(err))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

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
