package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/creack/pty"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// What others call themselves, and say, does nothing to a terminal.
func TestNothingReachesTheTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"plain, ünïcode, 日本語":      "plain, ünïcode, 日本語",
		"\x1b[2Jcleared\a":         `\x1b[2Jcleared\a`,
		"two\nlines\tand\r":        `two\nlines\tand\r`,
		"right\u202eto left":       `right\u202eto left`,
		"\u009b31m in eight bits":  `\u009b31m in eight bits`,
		"no utf-8: \xff\xfe":       `no utf-8: \xff\xfe`,
		"a replacement \ufffd is":  "a replacement \ufffd is",
		"zero\u200bwidth, \u2028.": `zero\u200bwidth, \u2028.`,
	} {
		if got := printable(text); got != want {
			t.Errorf("printable(%q) = %q, want %q", text, got, want)
		}
	}
	evil := "\x1b]0;title\a\nchubbyctl: forged\u202e"
	h := api.Holder{Session: 1, Principal: evil, Host: evil, Reason: evil}
	lock := client.LockInfo{Path: "/ls/local/a", Mode: api.Exclusive, Holders: []api.Holder{h}, Waiters: []client.Waiter{{Holder: h, Mode: api.Shared}}}
	for _, output := range []string{"text", "json"} {
		g := &globals{output: output}
		for name, write := range map[string]func(io.Writer) error{
			"locks":    func(w io.Writer) error { return g.printLocks(w, each(lock)) },
			"sessions": func(w io.Writer) error { return g.printSessions(w, each(client.SessionInfo{Holder: h})) },
			"explain": func(w io.Writer) error {
				return g.printExplanation(w, client.Explanation{Lock: lock, Sentences: []string{evil}, Cachers: []client.Cacher{{Holder: h}}})
			},
			"error": func(w io.Writer) error {
				g.printError(w, &api.Error{Code: api.LockHeld, Message: "held by " + evil, Holders: []api.Holder{h}})
				return nil
			},
			"notice": func(w io.Writer) error { g.notice(w, evil); return nil },
			"event": func(w io.Writer) error {
				o := &watchOptions{globals: g, now: now, out: w}
				return o.print(api.Event{Kind: api.EventLockLost, Path: "/ls/local/a", Explanation: evil})
			},
		} {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(b.String()) {
				if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return unicode.IsControl(r) || r == '\u202e' }) {
					t.Errorf("%s -o %s lets control characters through: %q", name, output, line)
				}
				if name == "error" && strings.HasPrefix(line, "chubbyctl: forged") {
					t.Errorf("a line was forged: %q", b.String())
				}
			}
		}
	}
}

// Names stand below each other whatever script they are in.
func TestTableAligns(t *testing.T) {
	var b bytes.Buffer
	table := newTable(&b, "NAME", "N")
	for _, name := range []string{"a", "日本語", "e\u0301te\u0301", "ﬁn"} {
		table.add(name, 1)
	}
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	want := "NAME    N\na       1\n日本語  1\ne\u0301te\u0301     1\nﬁn      1\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// Where the terminal is too narrow, a column that may be missed goes before another
// is shortened; with -o wide nothing does.
func TestTableLeavesColumnsOut(t *testing.T) {
	for _, c := range []struct {
		g     globals
		width int
		want  string
	}{
		{globals{output: "text"}, 40, "PATH  TOKEN  SESSION  WHO"},
		{globals{output: "text"}, 24, "PATH  TOKEN  WHO"},
		{globals{output: "text"}, 20, "PATH  WHO"},
		{globals{output: outputWide}, 0, "PATH  TOKEN  SESSION  WHO"},
	} {
		var b bytes.Buffer
		table := c.g.newTable(&b, "PATH", "TOKEN?", "SESSION?", "WHO")
		if c.width > 0 {
			table.style.width = c.width
		}
		table.add("/a", 1, "s1", "ann on web1")
		if err := table.flush(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(strings.SplitN(b.String(), "\n", 2)[0]), "  "); got != c.want {
			t.Errorf("at %d columns: %q, want %q", c.width, got, c.want)
		}
	}
}

// On a terminal no line of a list is wider than it, as long as that can be; in a
// pipe nothing is left out.
func TestTableFits(t *testing.T) {
	path := "/ls/local/" + strings.Repeat("directory/", 9) + "lock"
	reason := strings.Repeat("because ", 12)
	for width, want := range map[int]string{
		0:  "PATH", // of a pipe
		60: "/directory/lock  ann",
		80: "because b…", // a path is shortened last
	} {
		var b bytes.Buffer
		table := newTable(&b, "PATH", "WHO", "REASON")
		table.style.width = width
		table.add(path, "ann", reason)
		if err := table.flush(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("at %d columns, no %q in\n%s", width, want, b.String())
		}
		for line := range strings.Lines(b.String()) {
			if n := columns(strings.TrimSuffix(line, "\n")); width > 0 && n > width {
				t.Errorf("a line has %d columns of %d: %s", n, width, line)
			}
		}
		if width == 0 && (!strings.Contains(b.String(), path) || !strings.Contains(b.String(), reason)) {
			t.Errorf("in a pipe something is missing:\n%s", b.String())
		}
	}
	fields := newTable(io.Discard)
	fields.style.width = 20
	fields.add("path", path)
	if wide := fields.wide(); wide[1] != len(path) {
		t.Errorf("a field is shortened to %d columns", wide[1])
	}
}

func TestShortened(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"short", 10, "short"},
		{"exactly ten", 11, "exactly ten"},
		{"the beginning matters", 10, "the begin…"},
		{"/ls/local/a/b/lock", 10, "…/a/b/lock"},
		{"日本語日本語", 6, "日本…"},
	} {
		if got := shortened(c.text, c.most); got != c.want || columns(got) > c.most {
			t.Errorf("shortened(%q, %d) = %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

func TestWrapped(t *testing.T) {
	sentence := "one two three four five"
	if got := (style{}).wrapped(sentence, "- "); got != "- "+sentence {
		t.Errorf("in a pipe: %q", got)
	}
	if got := (style{width: 12}).wrapped(sentence, "- "); got != "- one two\n  three four\n  five" {
		t.Errorf("at 12 columns: %q", got)
	}
}

// Colours are for terminals, and for those who have not turned them off.
func TestColours(t *testing.T) {
	person, program, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer person.Close()
	defer program.Close()
	if err := pty.Setsize(person, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		noColor, term string
		out           io.Writer
		coloured      bool
		width         int
	}{
		{"", "xterm", program, true, 80},
		{"", "xterm", &speaker{w: program}, true, 80},
		{"1", "xterm", program, false, 80},
		{"", "dumb", program, false, 80},
		{"", "xterm", &bytes.Buffer{}, false, 0},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		s := styleOf(c.out)
		if coloured := s.on(trouble, "x") != "x"; coloured != c.coloured || s.width != c.width {
			t.Errorf("NO_COLOR=%q TERM=%q on %T: coloured %t, width %d", c.noColor, c.term, c.out, coloured, s.width)
		}
	}
	if file, err := os.CreateTemp(t.TempDir(), "out"); err != nil {
		t.Fatal(err)
	} else if s := styleOf(file); s != (style{}) {
		t.Errorf("a file is taken for a terminal: %+v", s)
	}
}

// Errors that were joined are told one by one; one that wraps two stays whole.
func TestSeveralErrors(t *testing.T) {
	var b bytes.Buffer
	(&globals{output: "text"}).printError(&b, errors.Join(errors.New("first"), errors.New("second")))
	if b.String() != "chubbyctl: first\nchubbyctl: second\n" {
		t.Errorf("printed %q", b.String())
	}
}

// What differs is told only of replicas that have applied the same.
func TestDivergence(t *testing.T) {
	a := client.ReplicaStatus{ID: "r1", Applied: 7, StateHash: "aaaaaaaaaaaa"}
	b := client.ReplicaStatus{ID: "r2", Applied: 7, StateHash: "bbbbbbbbbbbb"}
	if fault := divergence([]client.ReplicaStatus{a, b}); !strings.Contains(fault, "r1 and r2") {
		t.Errorf("not noticed: %q", fault)
	} else if !strings.Contains(fault, "stop all replicas") {
		t.Errorf("one of two that differ is to be stopped: %q", fault)
	}
	like := a
	like.ID = "r3"
	if fault := divergence([]client.ReplicaStatus{b, a, like}); !strings.Contains(fault, "Stop r2,") {
		t.Errorf("the one that differs from two of three is to be stopped: %q", fault)
	}
	b.Applied = 8
	c := client.ReplicaStatus{ID: "r3", Applied: 7, Err: errors.New("refused")}
	if fault := divergence([]client.ReplicaStatus{a, b, c}); fault != "" {
		t.Errorf("alarm for nothing: %s", fault)
	}
}

// A long list has the same columns to its end.
func TestSpareColumnsOfALongList(t *testing.T) {
	for _, wide := range []int{3, 30} { // of what comes behind the first piece
		var b bytes.Buffer
		list := newTable(&b, "PATH", "TOKEN?", "WHO")
		list.style.width = 40
		for i := range 2 * piece {
			name := strings.Repeat("x", 33-wide)
			if i >= piece {
				name = strings.Repeat("x", wide)
			}
			list.add(name, "11", "ann")
		}
		if err := list.flush(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		first := len(strings.Fields(lines[0]))
		for i, line := range lines {
			if got := len(strings.Fields(line)); got != first {
				t.Fatalf("line %d has %d columns, and the headings are %d:\n%s\n%s", i, got, first, lines[0], line)
			}
		}
	}
}
