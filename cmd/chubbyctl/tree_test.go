package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A directory with more children than are asked for at once is copied and deleted as a whole.
func TestLargeTrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, cell: celltest.Start(t, 1), ctx: t.Context()}
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
	c, err := client.New(t.Context(), client.Config{Servers: s.cell.Servers(), Dialer: s.cell.Dial, Clock: celltest.Clock, NoCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
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
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, cell: celltest.Start(t, 1, func(c *cell.Config) { c.InsecurePrincipals = true }), ctx: t.Context()}
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
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, cell: celltest.Start(t, 1), ctx: t.Context()}
		makeChildren(t, s, "/ls/local/many", 20)
		ctx, cancel := context.WithCancelCause(t.Context())
		s.ctx = ctx
		var printed buffer
		root, g := newRootCommand()
		g.adapt = func(cfg *client.Config) { cfg.Dialer, cfg.Clock = s.cell.Dial, celltest.Clock }
		root.SetArgs([]string{"--servers", strings.Join(s.cell.Servers(), ","), "rm", "-r", "many", "--yes", "-o", "json"})
		root.SetErr(&printed)
		root.SetOut(interrupting{after: "f3", cancel: func() { cancel(interrupted{os.Interrupt}) }})
		err := interruptOr(ctx, root.ExecuteContext(ctx))
		if exitCode(err) != 130 {
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
