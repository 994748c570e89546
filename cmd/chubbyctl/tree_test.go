package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A directory with more children than are asked for at once is copied and deleted as a whole.
func TestLargeTrees(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		const children = 2*treePage + 3
		makeChildren(t, s, "/ls/local/many", children)
		if out := s.run("cp -r many more -v"); !strings.Contains(out, fmt.Sprintf("copied %d nodes", children+1)) {
			t.Errorf("cp -r: %s", out)
		}
		if out := s.run("rm -r many --yes -v"); !strings.Contains(out, fmt.Sprintf("deleted %d nodes", children+1)) {
			t.Errorf("rm -r: %s", out)
		}
		if out := s.run("ls -R"); strings.Count(out, "\n") != children+3 || strings.Contains(out, "many") {
			t.Errorf("there are %d nodes", strings.Count(out, "\n"))
		}
	})
}

// makeChildren creates a directory with so many files.
func makeChildren(t *testing.T, s *stage, dir string, children int) {
	t.Helper()
	c := s.cell.Client("author", func(c *client.Config) { c.NoCache = true })
	if _, err := c.Open(t.Context(), dir, client.OpenOptions{Read: true, Create: client.Directory}); err != nil {
		t.Fatal(err)
	}
	for i := range children {
		if _, err := c.Open(t.Context(), fmt.Sprintf("%s/f%d", dir, i), client.OpenOptions{Read: true, Create: client.File}); err != nil {
			t.Fatal(err)
		}
	}
}

// A directory that must not be listed is left out of a tree, and the rest is shown.
func TestTreeWithoutAllRights(t *testing.T) {
	onStageOfAnybody(t, func(t *testing.T, s *stage) {
		for _, line := range []string{"mkdir -p job/shut/in", "touch job/z", "acl file put anns ann", "acl set job/shut --read anns"} {
			s.run(line + " --as ann")
		}
		const want = "  /ls/local/job\n  ├── shut/\n  └── z\n"
		if out := s.run("tree job --as bob"); !strings.Contains(out, "left out: /ls/local/job/shut: ") || !strings.Contains(out, "├── shut/\n") || !strings.HasSuffix(out, "1 was left out, for the reasons above\n  [exit 1]\n") {
			t.Errorf("it shows\n%swant\n%s", out, want)
		}
		if out := s.run("tree job --depth 1 --as bob"); out != want {
			t.Errorf("of depth 1 it shows\n%swant\n%s", out, want)
		}
	})
}

// After Ctrl-C nothing more is deleted, and it is said how much was.
func TestInterruptedRemoval(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		makeChildren(t, s, "/ls/local/many", 20)
		ctx, cancel := context.WithCancelCause(t.Context())
		s.ctx = ctx
		var printed buffer
		out := interrupting{after: "f3", cancel: func() { cancel(interrupted{os.Interrupt}) }}
		_, err := s.launch("", out, &printed, "rm -r many --yes -o json")
		if err = interruptOr(ctx, err); exitCode(err) != 130 {
			t.Errorf("it exits with %d: %v", exitCode(err), err)
		}
		s.ctx = t.Context()
		left := strings.Count(s.run("ls many"), "\n")
		if want := fmt.Sprintf("deleted %d nodes before that", 20-left); left == 0 || left == 20 || !strings.Contains(printed.String(), want) {
			t.Errorf("%d of 20 are left, and it says: %s", left, printed.String())
		}
	})
}

// interrupting is a writer that interrupts when a text was written.
type interrupting struct {
	after  string
	cancel func()
}

func (i interrupting) Write(text []byte) (int, error) {
	if strings.Contains(string(text), i.after) {
		i.cancel()
	}
	return len(text), nil
}

// What was exported is there after an import: every byte, and with --acl every name. A second import changes nothing.
func TestExportAndImport(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.run("acl file put ops anonymous")
		s.run("mkdir -p svc/a/b")
		for path, contents := range map[string]string{"svc/text": "<a & b>\n\u2028", "svc/a/bytes": "\xff\x00\n", "svc/a/empty": "", "svc/a/b/large": strings.Repeat("\x01", api.MaxContents)} {
			if _, said, code := s.try(contents, "put "+path+" -"); code != 0 {
				t.Fatal(said)
			}
		}
		s.run("acl set svc/a --write ops")
		s.run("acl set svc/text --read ops")

		export := func(path string) string {
			t.Helper()
			out, said, code := s.try("", "export "+path)
			if code != 0 {
				t.Fatalf("export %s: %s", path, said)
			}
			_, nodes, _ := strings.Cut(out, "\n") // the first line has the path
			return nodes
		}
		whole, _, _ := s.try("", "export svc")
		if out, said, code := s.try(whole, "import copy --acl -v"); code != 0 || out != "" || !strings.Contains(said, "imported 7 nodes") {
			t.Fatalf("import: %d, %s%s", code, out, said)
		}
		if got, want := export("copy"), export("svc"); got != want {
			t.Errorf("after import there is\n%.2000s\nwant\n%.2000s", got, want)
		}
		if _, said, code := s.try(whole, "import copy -v"); code != 0 || !strings.Contains(said, "imported 7 nodes") {
			t.Errorf("the second time: %d, %s", code, said)
		}

		s.run("put copy/text changed")
		if _, said, code := s.try(whole, "import copy"); code != exitFailed || !strings.Contains(said, "left out: /ls/local/copy/text: ") || !strings.Contains(said, "imported 6 nodes; 1 was left out") {
			t.Errorf("over another file: %d, %s", code, said)
		}
		if out := s.run("cat copy/text"); !strings.Contains(out, "changed") {
			t.Errorf("it was replaced by %s", out)
		}
		if _, said, code := s.try(whole, "import copy --overwrite --acl"); code != 0 || export("copy") != export("svc") {
			t.Errorf("--overwrite: %d, %s", code, said)
		}
	})
}

// An export of which a part is missing is not taken for a whole one, and what was imported until then is
// said.
func TestCutExports(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.run("mkdir -p svc/a")
		s.run("put svc/one 1")
		whole, _, _ := s.try("", "export svc")
		lines := strings.SplitAfter(strings.TrimSuffix(whole, "\n"), "\n")
		without := func(n int) string { return strings.Join(append(append([]string{}, lines[:n]...), lines[n+1:]...), "") }
		for in, want := range map[string]string{
			"":         "its last line is missing",
			"x":        "none of an export",
			without(0): "not the first one",
			strings.Replace(whole, `"chubby_export":1`, `"chubby_export":2`, 1): "format 2",
		} {
			if _, said, code := s.try(in, "import other"); code != exitUsage || !strings.Contains(said, want) {
				t.Errorf("%.60q: exit %d, %s; want %d, %q", in, code, said, exitUsage, want)
			}
		}
		for in, want := range map[string]string{
			without(len(lines) - 1): "its last line is missing",
			without(2):              "lines are missing",
			whole[:len(whole)-len(lines[len(lines)-1])-5]:                                 "none of an export",
			strings.Replace(whole, `"path":"one"`, `"path":"../one"`, 1):                  "relative",
			strings.Replace(whole, `"path":"one"`, `"path":"/one"`, 1):                    "the path",
			strings.Replace(whole, `"kind":"file"`, `"kind":"link"`, 1):                   "no kind of node",
			strings.Replace(whole, `"kind":"file"`, `"kinds":"file"`, 1):                  "none of an export",
			strings.Replace(whole, `"contents":"1"`, `"contents_base64":"no base64!"`, 1): "no base64",
		} {
			if _, said, code := s.try(in, "import other"); code != exitFailed || !strings.Contains(said, want) || !strings.Contains(said, "(Corrupt)") {
				t.Errorf("%.60q: exit %d, %s; want %d, %q", in, code, said, exitFailed, want)
			}
		}
		if _, said, _ := s.try(without(len(lines)-1), "import other"); !strings.Contains(said, "imported 3 nodes before that") {
			t.Errorf("it does not say what is done: %s", said)
		}
		if _, said, code := s.try(whole, "import nowhere/other"); code != exitFailed || !strings.Contains(said, "mkdir -p /ls/local/nowhere") {
			t.Errorf("below no directory: %d, %s", code, said)
		}
		if _, said, code := s.try(whole, "import /acl/svc"); code != exitUsage || !strings.Contains(said, "access control lists") {
			t.Errorf("into the lists: %d, %s", code, said)
		}
		all, _, _ := s.try("", "export /")
		if _, said, code := s.try(all, "import / -v"); code != exitFailed || !strings.Contains(said, "left out: /ls/local/acl/everyone") {
			t.Errorf("a whole cell: %d, %s", code, said)
		}
	})
}

// A line that does not end does not fill the memory.
func TestLongLinesOfExports(t *testing.T) {
	r := newExportReader(io.LimitReader(endless{}, 1<<40))
	if _, err := r.next(); exitCode(err) != exitUsage || errors.Is(err, io.EOF) {
		t.Errorf("it read a line without an end: %v", err)
	}
	if n := len(bytes.TrimSpace(r.lines.Bytes())); n > maxExportLine {
		t.Errorf("it keeps %d bytes", n)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
