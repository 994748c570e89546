package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// The files in testdata/transcripts are what a user types and reads, with a
// real cell of one replica, in virtual time. A line that begins with "$ " is
// run; with "& ", it runs beside what follows, until the end; "sleep 3s" waits.
// What is printed follows each, and its exit code if that is not 0. Lines that
// begin with # are for the reader. go test -update writes what is printed now.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			onStageOfAnybody(t, func(t *testing.T, s *stage) { got = replay(t, s, string(want)) })
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			} else if !bytes.Equal(got, want) {
				t.Errorf("it reads now (go test -update writes it):\n%s", firstDifference(string(want), string(got)))
			}
		})
	}
}

func firstDifference(want, got string) string {
	old, now := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i, line := range now {
		if i >= len(old) || old[i] != line {
			was := "(the end)"
			if i < len(old) {
				was = old[i]
			}
			return fmt.Sprintf("line %d\nwas: %s\nnow: %s", i+1, was, line)
		}
	}
	return fmt.Sprintf("line %d\nwas: %s\nnow: (the end)", len(now), strings.Join(old[len(now):], "\n"))
}

// stage is a cell of one replica, and what runs commands on it.
type stage struct {
	t      *testing.T
	cell   *celltest.Cell
	ctx    context.Context
	dial   func(context.Context, string) (net.Conn, error) // in place of the cell's; may be nil
	beside sync.WaitGroup
}

// onStage runs a test in virtual time.
func onStage(t *testing.T, f func(t *testing.T, s *stage)) {
	t.Helper()
	celltest.Run(t, 1, func(t *testing.T, c *celltest.Cell) { f(t, &stage{t: t, cell: c, ctx: t.Context()}) })
}

// onStageOfAnybody is onStage in a cell that believes callers who they are.
func onStageOfAnybody(t *testing.T, f func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1, func(c *cell.Config) { c.InsecurePrincipals = true })
		f(t, &stage{t: t, cell: c, ctx: t.Context()})
	})
}

// launch runs one command line as a process of its own would, and returns what prints its error, and how it ends.
func (s *stage) launch(in string, out, remarks io.Writer, line string) (*globals, error) {
	root, g := newRootCommand()
	g.adapt = func(cfg *client.Config) {
		cfg.Dialer, cfg.Clock = s.dial, celltest.Clock
		if s.dial == nil {
			cfg.Dialer = s.cell.Dial
		}
	}
	root.SetArgs(append([]string{"--servers", strings.Join(s.cell.Servers(), ",")}, split(s.t, line)...))
	root.SetIn(strings.NewReader(in))
	root.SetOut(out)
	root.SetErr(remarks)
	return g, root.ExecuteContext(s.ctx)
}

// tell runs a command line, prints its error behind what it says, and returns its exit code.
func (s *stage) tell(in string, out, remarks io.Writer, line string) int {
	g, err := s.launch(in, out, remarks, line)
	if err = interruptOr(s.ctx, err); err != nil {
		g.printError(remarks, err)
	}
	return exitCode(err)
}

// try runs a command line, and returns what it prints and says, and its exit code.
func (s *stage) try(in, line string) (out, said string, code int) {
	var printed, remarks buffer
	code = s.tell(in, &printed, &remarks, line)
	return printed.String(), remarks.String(), code
}

// runOver runs one command line over a network, and returns what it prints and says, and its exit code.
func runOver(t *testing.T, c *celltest.Cell, dial func(context.Context, string) (net.Conn, error), line, stdin string) (printed string, code int) {
	t.Helper()
	var out buffer
	code = (&stage{t: t, cell: c, ctx: t.Context(), dial: dial}).tell(stdin, &out, &out, line)
	return out.String(), code
}

// replay runs the commands of a transcript, and returns it with what they print.
func replay(t *testing.T, s *stage, script string) []byte {
	ctx, cancel := context.WithCancelCause(t.Context())
	s.ctx = ctx
	var out bytes.Buffer
	for line := range strings.Lines(script) {
		command, typed := strings.CutPrefix(line, "$ ")
		aside, runs := strings.CutPrefix(line, "& ")
		pause, waits := strings.CutPrefix(line, "sleep ")
		switch {
		case typed:
			out.WriteString(line + s.run(command))
		case runs:
			out.WriteString(line)
			s.beside.Go(func() { s.run(aside) })
			synctest.Wait()
		case waits:
			out.WriteString(line)
			d, err := time.ParseDuration(strings.TrimSpace(pause))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
		case line == "\n" || line[0] == '#':
			if !bytes.HasSuffix(out.Bytes(), []byte("\n\n")) || line[0] == '#' {
				out.WriteString(line)
			}
		}
	}
	cancel(interrupted{os.Interrupt})
	s.beside.Wait()
	return out.Bytes()
}

// run runs one command line as a process of its own would, and returns what it
// prints and how it ends.
func (s *stage) run(line string) string {
	var printed buffer
	code := s.tell("", &printed, &printed, line)
	text := printed.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if code != 0 {
		text += fmt.Sprintf("[exit %d]\n", code)
	}
	return indented(settled(text))
}

// indented indents empty lines of the output, so that they are not taken for the script's.
func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + line)
	}
	return b.String()
}

// buffer may be written to by several goroutines.
type buffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// settled replaces what differs from machine to machine, and from run to run.
// The widths of columns differ with that, so columns are two spaces apart.
func settled(text string) string {
	before := text
	if host, err := os.Hostname(); err == nil {
		text = regexp.MustCompile(`\b`+regexp.QuoteMeta(host)+`\b`).ReplaceAllString(text, "web1")
	}
	text = regexp.MustCompile(fmt.Sprintf(`\b%d\b`, os.Getpid())).ReplaceAllString(text, "4711")
	for _, r := range []struct{ pattern, with string }{
		{`[0-9a-f]{32,}`, "0123456789abcdef"},
		{`"state_hash":"[0-9a-f]+"`, `"state_hash":"0123456789abcdef"`},
		{`[0-9.]+[KMGT]iB( +)[0-9a-f]{6} `, "1GiB${1}012345 "},
		{`[0-9.]+s to [0-9.]+s`, "8s to 9s"}, // it depends on when the lease was extended
		{`"disk_free_bytes":[0-9]+`, `"disk_free_bytes":1073741824`},
		{`"request":"[0-9a-f]{16}"`, `"request":"0123456789abcdef"`},
		{`\b(p-?[0-9])\.[A-Z2-7]{26}\b`, "$1.JGQ6ZPKW5QHYDMDRV3ZDWXNFJ4"},
		{`"version":"[^"]*"`, `"version":"devel"`},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	if text != before {
		text = regexp.MustCompile(` {2,}`).ReplaceAllString(text, "  ")
	}
	return text
}

// split splits a command line at spaces, but for those in single quotes.
func split(t *testing.T, line string) []string {
	var list []string
	word, quoted, begun := "", false, false
	for _, r := range strings.TrimSpace(strings.TrimPrefix(line, "chubbyctl ")) + " " {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			if begun {
				list = append(list, word)
			}
			word, begun = "", false
		default:
			word, begun = word+string(r), true
		}
	}
	if quoted {
		t.Fatalf("a quote is open in %q", line)
	}
	return list
}
