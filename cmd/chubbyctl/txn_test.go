package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// What no cell would take is refused before the cell is asked, by the name of its flag, and says what to write.
func TestTxnFaults(t *testing.T) {
	many := func(flag string, n int) (args []string) {
		for i := range n {
			args = append(args, flag, fmt.Sprintf("f%d", i))
		}
		return args
	}
	large := filepath.Join(t.TempDir(), "large")
	half := filepath.Join(t.TempDir(), "half")
	for file, size := range map[string]int{large: api.MaxContents + 1, half: api.MaxContents / 2} {
		if err := os.WriteFile(file, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := "chubby1:x:42:8d7d12148ef07c5c275c7061888f1e24:466140f4:/ls/local/h"
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"a=b"}, 2, "takes no arguments"},
		{[]string{"--put", "a"}, 2, `--put "a": want PATH=VALUE; PATH= alone writes an empty file`},
		{[]string{"--put-file", "a"}, 2, `--put-file "a": want PATH=FILE`},
		{[]string{"--put-file", "a="}, 2, "the name of a file"},
		{[]string{"--create-file", "a=/no/such/file"}, 1, "--create-file: open /no/such/file"},
		{[]string{"--create-file", "a=/"}, 1, "--create-file: read /: is a directory"},
		{[]string{"--put", "a//b=c"}, 2, `--put "a//b=c": component`},
		{[]string{"--rm", ""}, 2, `--rm ""`},
		{[]string{"--put", `a\=b`}, 2, "a path ends at its =, also behind a backslash"},
		{[]string{"--if-generation", `a\=b=0`}, 2, "a path ends at its =, also behind a backslash"},
		{[]string{"--if-absent", "ls/local/a"}, 2, "a path begins with /ls/"},
		{[]string{"--if-generation", "a"}, 2, `--if-generation "a": want PATH=NUMBER`},
		{[]string{"--if-generation", "a=-1"}, 2, "a whole number"},
		{[]string{"--if-instance", "a=0"}, 2, "never 0"},
		{[]string{"--if-sequencer", ""}, 3, "--if-sequencer: "},
		{[]string{"--if-sequencer", good, "--rm", "/ls/foo/a"}, 2, "--rm: /ls/foo/a is in another cell than /ls/local/h"},
		{[]string{"--put", "a=-", "--create-file", "b=-"}, 2, "--put of /ls/local/a and --create-file of /ls/local/b both want standard input"},
		{many("--rm", api.MaxTxnSteps+1), 2, "0 conditions (--if-...) and 65 changes; a transaction has at most 64 of each"},
		{append(many("--if-absent", api.MaxTxnSteps), many("--rm", api.MaxTxnSteps)...), 69, ""},
		{[]string{"--put-file", "a=" + large}, 1, "txn /ls/local/a: up to --put-file of it, paths and values have together more than 262144 bytes"},
		{[]string{"--create-file", "a=" + half, "--put-file", "b=" + half}, 1, "txn /ls/local/b: up to --put-file"},
		{[]string{"--create-file", "a=" + half, "--if-generation", "b=c=0"}, 69, ""},
		{[]string{"--if-sequencer", good}, 69, ""},
	} {
		_, err := execute(t, strings.NewReader("x"), append([]string{"txn"}, c.args...)...)
		if exitCode(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%.200q: %v (exit code %d), want %d with %q", c.args, err, exitCode(err), c.code, c.text)
		}
	}
}

// Standard input is read up to the limit, and not sent if there is more.
func TestTxnRefusesLargeInput(t *testing.T) {
	for size, want := range map[int]int{api.MaxContents - len("/ls/local/a"): exitUnavailable, api.MaxContents: exitFailed, api.MaxContents + 1: exitFailed} {
		_, err := execute(t, strings.NewReader(strings.Repeat("x", size)), "txn", "--put", "a=-")
		if exitCode(err) != want || (want == exitFailed) != errors.Is(err, api.TooLarge) || want == exitFailed && !strings.Contains(err.Error(), "--put") {
			t.Errorf("%d bytes: exit code %d (%v), want %d", size, exitCode(err), err, want)
		}
	}
}

// Values are taken as they are: every byte from standard input and from files, and what looks like something else on the
// command line.
func TestTxnValues(t *testing.T) {
	const bytes = "\x00\xff\n@=\\-\n"
	file := filepath.Join(t.TempDir(), "a=b")
	if err := os.WriteFile(file, []byte("file "+bytes), 0o600); err != nil {
		t.Fatal(err)
	}
	onStage(t, func(t *testing.T, s *stage) {
		_, said, code := s.try(bytes, "txn --put in=- --put-file file="+file+" --create at=@"+file+" --put dash=-- --put equal== --create 'spaces=a  b '")
		if code != 0 {
			t.Fatal(said)
		}
		for name, want := range map[string]string{"in": bytes, "file": "file " + bytes, "at": "@" + file, "dash": "--", "equal": "=", "spaces": "a  b "} {
			if out, _, _ := s.try("", "cat "+name); out != want {
				t.Errorf("%s has %q, want %q", name, out, want)
			}
		}
	})
}

// The flag that an error is about is named only if it can be no other.
func TestStepOfAnError(t *testing.T) {
	step := func(flag, path string) *txnStep {
		i := slices.IndexFunc(stepKinds(), func(k stepKind) bool { return k.flag == flag })
		return &txnStep{stepKind: stepKinds()[i], path: api.MustParsePath(path)}
	}
	tr := &txnOptions{steps: []*txnStep{
		step("if-exists", "/ls/local/a"), step("put", "/ls/local/a"), step("if-exists", "/ls/local/b"), step("if-instance", "/ls/local/b"),
		step("if-sequencer", "/ls/local/a"), step("rm", "/ls/local/c"),
	}}
	for _, c := range []struct {
		code api.Code
		path string
		want string
	}{
		{api.GenerationMismatch, "/ls/local/a", "if-exists"},
		{api.GenerationMismatch, "/ls/local/b", ""},
		{api.BadSequencer, "", "if-sequencer"},
		{api.NotFound, "/ls/local/c", "rm"},
		{api.IsDirectory, "/ls/local/a", "put"},
		{api.PermissionDenied, "/ls/local/a", ""},
		{api.PermissionDenied, "/ls/local/c", "rm"},
		{api.Unavailable, "", ""},
		{api.Unavailable, "/ls/local/c", ""},
		{api.Uncertain, "/ls/local/c", ""}, // all of it may have been done
	} {
		got := ""
		if s := tr.stepOf(&api.Error{Code: c.code, Path: c.path}); s != nil {
			got = s.flag
		}
		if got != c.want {
			t.Errorf("%v of %q is about %q, want %q", c.code, c.path, got, c.want)
		}
	}
	if s := tr.stepOf(errors.New("x")); s != nil {
		t.Errorf("another error is about %s", s.flag)
	}
}

// A pipe has its contents once: no value is empty because another had it.
func TestTxnReadsAPipeOnce(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	defer in.Close()
	fifo, link := newFIFO(t), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(fifo, link); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--put-file", "a=" + fifo, "--create-file", "b=" + fifo},
		{"--put-file", "a=" + fifo, "--put-file", "b=" + link},
		{"--put", "a=-", "--put-file", "b=/dev/fd/" + strconv.Itoa(int(out.Fd()))},
	} {
		if _, err := execute(t, out, append([]string{"txn"}, args...)...); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "one pipe") {
			t.Errorf("%q: %v", args, err)
		}
	}
	_, err = execute(t, nil, "txn", "--put-file", "a=/dev/null", "--put-file", "b=/dev/null")
	if exitCode(err) != exitUnavailable {
		t.Errorf("what can be read again: %v", err)
	}
}
