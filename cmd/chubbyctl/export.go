package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// exportFormat is the version of the export format.
const exportFormat = 1

// exportLine is a JSON line of an export. The first has Format, the last End; the others are nodes, directories
// before their contents.
type exportLine struct {
	Format int    `json:"chubby_export,omitempty"`
	Path   string `json:"path,omitempty"` // the first line: what was exported; else the node's path below it, empty for itself

	Kind           string   `json:"kind,omitempty"`
	Contents       *string  `json:"contents,omitempty"` // of a file, if UTF-8
	ContentsBase64 string   `json:"contents_base64,omitempty"`
	ACL            *api.ACL `json:"acl,omitempty"`

	End   bool `json:"end,omitempty"`
	Nodes int  `json:"nodes,omitempty"` // the last line: how many
}

func exportVerb(g *globals, cmd *cobra.Command, p api.Path) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	return g.overTree(cmd, p, "exported", func(ctx context.Context, w *treeWalk, root api.Stat) error {
		if root.Ephemeral {
			return usagef("export: %v is ephemeral: it belongs to a session, and goes with it", p)
		}
		if err := lines.Encode(exportLine{Format: exportFormat, Path: p.String()}); err != nil {
			return err
		}
		err := w.visit(ctx, root, treeVisitor{lasting: true, enter: func(s api.Stat) error {
			contents, err := w.contentsOf(ctx, s)
			if err != nil {
				return err
			}
			return errors.Join(w.countNode(nil), lines.Encode(newExportLine(s, p, contents)))
		}})
		if err != nil {
			return err
		}
		if err := lines.Encode(exportLine{End: true, Nodes: w.done}); err != nil {
			return err
		}
		return out.Flush()
	})
}

func newExportLine(s api.Stat, root api.Path, contents []byte) exportLine {
	line := exportLine{
		Path: strings.TrimPrefix(strings.TrimPrefix(string(s.Path.Name()), string(root.Name())), "/"),
		Kind: s.Kind.String(), ACL: &s.ACL,
	}
	switch {
	case s.Kind == api.Directory:
	case utf8.Valid(contents):
		text := string(contents)
		line.Contents = &text
	default:
		line.ContentsBase64 = base64.StdEncoding.EncodeToString(contents)
	}
	return line
}

// maxExportLine is the maximum of a line in bytes: a file whose bytes each take six in JSON.
const maxExportLine = 6*api.MaxContents + 64<<10

type exportReader struct {
	lines *bufio.Scanner
	line  int
	nodes int
}

func newExportReader(in io.Reader) *exportReader {
	s := bufio.NewScanner(in)
	s.Buffer(nil, maxExportLine)
	return &exportReader{lines: s}
}

// fault returns the error of a line: the first is no export; a later one is damaged.
func (r *exportReader) fault(format string, args ...any) error {
	text := fmt.Sprintf("line %d: %s", r.line, fmt.Sprintf(format, args...))
	if r.line == 1 {
		return usagef("import: %s", text)
	}
	return &api.Error{Code: api.Corrupt, Op: "import", Message: text + "; nothing of what follows was imported"}
}

// next returns the next line, and io.EOF after the last. An incomplete export is an error.
func (r *exportReader) next() (exportLine, error) {
	bad := func(format string, args ...any) (exportLine, error) { return exportLine{}, r.fault(format, args...) }
	r.line++
	if !r.lines.Scan() {
		if err := r.lines.Err(); err != nil {
			return bad("%v", err)
		}
		return bad("the export ends here, and its last line is missing: it was cut; export again, and import that")
	}
	var line exportLine
	decoder := json.NewDecoder(strings.NewReader(r.lines.Text()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&line); err != nil {
		return bad("it is none of an export: %v", err)
	}
	switch {
	case r.line == 1 && line.Format == 0:
		return bad("it is not the first one of an export, as 'chubbyctl export' writes it")
	case r.line == 1 && line.Format != exportFormat:
		return bad("the export has format %d; this version knows %d", line.Format, exportFormat)
	case r.line == 1:
		return line, nil
	case line.End && line.Nodes != r.nodes:
		return bad("the export had %d nodes, and %d have come: lines are missing", line.Nodes, r.nodes)
	case line.End:
		return line, io.EOF
	case line.Kind != api.File.String() && line.Kind != api.Directory.String():
		return bad("%q is no kind of node", line.Kind)
	}
	r.nodes++
	return line, nil
}

func (l exportLine) bytes() ([]byte, error) {
	if l.Contents != nil {
		return []byte(*l.Contents), nil
	}
	return base64.StdEncoding.DecodeString(l.ContentsBase64)
}

type importOptions struct {
	*globals
	overwrite bool
	names     bool // --acl
}

func importVerb(g *globals, cmd *cobra.Command) {
	o := &importOptions{globals: g}
	cmd.RunE = g.onPath(func(cmd *cobra.Command, p api.Path) error {
		if p.Name() == api.ACLDir || isList(p) {
			return usagef("import: %v is for access control lists, which are written one by one: 'chubbyctl acl file put NAME'", p)
		}
		in := cmd.InOrStdin()
		if term.IsTerminal(in) {
			return usagef("import: it reads an export from standard input, as in 'chubbyctl import PATH <FILE'")
		}
		lines := newExportReader(in)
		if _, err := untilInterrupt(cmd.Context(), lines.next); err != nil { // before anything is sent
			return err
		}
		return o.withTree(cmd, p, "imported", func(ctx context.Context, w *treeWalk) error {
			return (&importing{importOptions: o, treeWalk: w, root: p}).run(ctx, lines)
		})
	})
	cmd.Flags().BoolVar(&o.overwrite, "overwrite", false, "replace the contents of files that are there")
	cmd.Flags().BoolVar(&o.names, "acl", false, "set the ACL names of the export, too")
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
		return i.countNode(nil) // it exists
	}
	err := i.put(ctx, p, kind, contents, !i.overwrite)
	if api.CodeOf(err) == api.Exists {
		failed := i.call(ctx, p, func(ctx context.Context) error {
			found, _, err := i.client.Get(ctx, p.String())
			if err == nil && !bytes.Equal(found, contents) {
				err = errSkip
			}
			return err
		})
		if failed == nil { // it has these contents already
			err = nil
		}
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
		return i.countNode(map[string]string{"path": p.String()})
	}
	passing := []api.Code{api.Exists, api.PermissionDenied, api.IsDirectory, api.NotDirectory, api.InvalidArgument}
	if p != i.root {
		passing = append(passing, api.NotFound)
	}
	return unlessSkipped(i.leaveFor(p, err, passing...))
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
