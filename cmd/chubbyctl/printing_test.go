package main

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// full is where nothing can be written.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Who cannot be told what was done learns that it was: doing it again would do it twice.
func TestDoneAndNotPrinted(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for line, want := range map[string]string{
			"txn --put a=x -o json": "the changes were made",
		} {
			_, err := s.launch("", full{}, io.Discard, line)
			if exitCode(err) != exitFailed || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v (exit code %d), want %q", line, err, exitCode(err), want)
			}
		}
	})
}

// answer runs a command line whose standard output is w, and returns what it says, and how it ends.
func (s *stage) answer(w io.Writer, line string) (string, error) {
	var said buffer
	out := term.NewOutlet(w, nil)
	g, err := s.launch("", out, &said, line)
	err = unwritten(err, out.Failure(), exitBySignal+int(syscall.SIGPIPE))
	if err != nil {
		g.printError(&said, err)
	}
	return said.String(), err
}

// Every verb fails whose answer could not be written.
func TestEveryAnswerIsWritten(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.run("mkdir d")
		s.run("put d/a x")
		for _, line := range []string{
			"ls", "ls -R", "ls -l", "ls d -o json", "tree", "tree -o yaml", "cat d/a", "cat d/a -o json", "stat d/a", "stat d/a -o json", "put d/b x -o json", "touch d/a -o json",
			"mkdir d/e -o json", "cp d/a d/c -o json", "rm d/c -o json", "export d", "txn --if-exists d/a --put d/a=y -o json", "acl get d", "acl get d -o json", "acl can read d/a",
			"acl file ls", "quota ls", "quota ls -o json", "cell status", "cell status -o json", "cell members", "cell upgrade status",
			"session ls", "whoami", "whoami -o json", "top --times 1", "top --times 1 -o json", "history d/a", "explain d/a",
			"explain d/a -o json", "elect --show d/a -o json", "semaphore sem --slots 2 --resize -o json", "locks -o json --graph",
			"locks --graph", "lint", "lint -o json", "sizing", "sizing -o json", "config current", "version -o json", "completion fish", "help acquire", "members --help",
			"acquire d/a", "acquire d/a -o json", "elect d/a --value x", "semaphore sem --slots 2", "members join up", "put d/eph x --ephemeral -o json",
		} {
			said, err := s.answer(full{}, line)
			if !errors.Is(err, syscall.ENOSPC) || exitCode(err) == 0 || !strings.Contains(said, "no space left") {
				t.Errorf("chubbyctl %s: %v (exit code %d); it says %q", line, err, exitCode(err), said)
			}
		}
	})
}

// After an error nothing is done for the paths behind it, and they are named.
func TestSeveralPaths(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.run("put a 1")
		s.run("put b 2")
		for _, c := range []struct {
			line, printed string
			said          string
		}{
			{"rm no a", "", "; not done: /ls/local/a\n"},
			{"rm no a b", "", "; not done: /ls/local/a and 1 more\n"},
			{"cat a no b", "1", "; not done: /ls/local/b\n"},
			{"cat a b no", "12", "no such node"},
		} {
			out, said, code := s.try("", c.line)
			if code != exitFailed || out != c.printed || !strings.Contains(said, c.said) || strings.Contains(said, "not done") != strings.Contains(c.said, "not done") {
				t.Errorf("%s: %d, %q, %q; want %q, %q", c.line, code, out, said, c.printed, c.said)
			}
		}
		if said, err := s.answer(full{}, "stat a b"); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(said, "; not done: /ls/local/b\n") {
			t.Errorf("on a full disk: %v; it says %q", err, said)
		}
		if out := s.run("cat a b"); !strings.Contains(out, "12") {
			t.Errorf("there is %q", out)
		}
	})
}
