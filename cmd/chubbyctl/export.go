package main

import (
	"bufio"
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

func newExportCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "export PATH",
		Short: "Write a node, with everything below it, to standard output",
		Long: `export writes a file, or a directory with everything below it, to standard output: its
contents and ACL names, for 'chubbyctl import', in this cell or another. It is no backup:
it is read node by node, and not at one moment, and has neither locks nor generations
('chubbyctl cell backup' takes a backup). What is ephemeral, and what you may not read, is
left out: export says so, and exits with 1 when the rest is written.

The format is an object of JSON a line. The first has chubby_export, the version of the
format (1), and path. Then comes each node, directories before what is in them, with path
(below that of the first line), kind, for a file contents or contents_base64, and acl. The
last one has end and nodes, how many there were: without it, a part is missing.`,
		Example: `  chubbyctl export /ls/local/svc >svc.jsonl
  chubbyctl export /ls/old/svc | chubbyctl import /ls/new/svc`,
		RunE: g.onPath(g.export),
	}
}

func (g *globals) export(cmd *cobra.Command, p api.Path) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	return g.withTree(cmd, p, "exported", func(ctx context.Context, w *treeWalk) error {
		root, err := w.statOf(ctx, p)
		if err != nil {
			return err
		}
		if root.Ephemeral {
			return usagef("export: %v is ephemeral: it belongs to a session, and goes with it", p)
		}
		if err := lines.Encode(exportLine{Format: exportFormat, Path: p.String()}); err != nil {
			return err
		}
		err = w.visit(ctx, root, treeVisitor{lasting: true, enter: func(s api.Stat) error {
			contents, err := w.contentsOf(ctx, s)
			if err != nil {
				return err
			}
			return errors.Join(w.count(nil), lines.Encode(newExportLine(s, p, contents)))
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
