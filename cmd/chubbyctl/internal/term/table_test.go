package term

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// Columns are aligned in all scripts.
func TestTableAligns(t *testing.T) {
	var b bytes.Buffer
	table := Text.NewTable(&b, "NAME", "N")
	for _, name := range []string{"a", "日本語", "e\u0301te\u0301", "ﬁn"} {
		table.Add(name, 1)
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "NAME    N\na       1\n日本語  1\ne\u0301te\u0301     1\nﬁn      1\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// If the terminal is too narrow, optional columns are left out before others are narrowed; with -o wide none is.
func TestTableLeavesColumnsOut(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	person, program, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer person.Close()
	defer program.Close()
	for _, c := range []struct {
		format Format
		width  uint16
		want   string
	}{
		{Text, 40, "PATH  TOKEN  SESSION  WHO"},
		{Text, 24, "PATH  TOKEN  WHO"},
		{Text, 20, "PATH  WHO"},
		{Wide, 20, "PATH  TOKEN  SESSION  WHO"},
	} {
		var b bytes.Buffer
		if err := pty.Setsize(person, &pty.Winsize{Rows: 24, Cols: c.width}); err != nil {
			t.Fatal(err)
		}
		table := c.format.NewTable(program, "PATH", "TOKEN?", "SESSION?", "WHO")
		table.out = &b
		table.Add("/a", 1, "s1", "ann on web1")
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(strings.SplitN(b.String(), "\n", 2)[0]), "  "); got != c.want {
			t.Errorf("at %d columns: %q, want %q", c.width, got, c.want)
		}
	}
}

// On a terminal no line of a list is wider than the terminal, if that is possible, and nothing is lost.
func TestTableFits(t *testing.T) {
	path := "/ls/local/" + strings.Repeat("directory/", 9) + "lock"
	reason := strings.TrimSpace(strings.Repeat("because ", 12))
	for _, width := range []int{0, 60, 80} { // 0 is that of a pipe
		var b bytes.Buffer
		table := Text.NewTable(&b, "PATH", "WHO", "REASON")
		table.style.Width = width
		table.Add(path, "ann", reason)
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		var paths, reasons []string
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			if n := columns(line); width > 0 && n > width {
				t.Errorf("a line has %d columns of %d: %s", n, width, line)
			}
			for _, word := range strings.Fields(line) {
				switch {
				case word == "because":
					reasons = append(reasons, word)
				case strings.Contains(word, "/"), word == "lock":
					paths = append(paths, word)
				}
			}
		}
		if strings.Join(paths, "") != path || strings.Join(reasons, " ") != reason {
			t.Errorf("at %d columns something is missing:\n%s", width, b.String())
		}
		if width == 0 && strings.Count(b.String(), "\n") != 2 {
			t.Errorf("in a pipe a row is not one line:\n%s", b.String())
		}
	}
	fields := Text.NewTable(io.Discard)
	fields.style.Width = 20
	fields.Add("path", path)
	if widths := fields.widths(); widths[1] != len(path) {
		t.Errorf("a field is narrowed to %d columns", widths[1])
	}
}

// A long list has the same columns to its end.
func TestSpareColumnsOfALongList(t *testing.T) {
	for _, wide := range []int{3, 30} { // how wide the names are after the first piece
		var b bytes.Buffer
		list := Text.NewTable(&b, "PATH", "TOKEN?", "WHO")
		list.style.Width = 40
		for i := range 2 * piece {
			name := strings.Repeat("x", 33-wide)
			if i >= piece {
				name = strings.Repeat("x", wide)
			}
			list.Add(name, "11", "ann")
		}
		if err := list.Flush(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		first := len(strings.Fields(lines[0]))
		for i, line := range lines {
			goesOn := wide == 30 && !strings.Contains(line, "ann") // the rest of a name
			if got := len(strings.Fields(line)); got != first && !goesOn {
				t.Fatalf("line %d has %d columns, and the headings are %d:\n%s\n%s", i, got, first, lines[0], line)
			}
		}
	}
}

// A long listing is printed as it comes, and takes no more memory than a short one.
func TestLongListingsArePrintedInPieces(t *testing.T) {
	const items = 100_000
	var lines, longest int
	count := writerFunc(func(b []byte) (int, error) {
		lines, longest = lines+bytes.Count(b, []byte("\n")), max(longest, len(b))
		return len(b), nil
	})
	rows := List[int]{Add: func(t *Table, i int) { t.Add(i, "p", "h", i%7) }, Columns: []string{"ID", "PRINCIPAL", "HOST", "LOCKS"}}
	list := func(yield func(int, error) bool) {
		for i := range items {
			if !yield(i, nil) {
				return
			}
		}
	}
	if err := rows.Print(count, Text, list); err != nil || lines != items+1 || longest > 100*piece {
		t.Errorf("%d lines, the longest write of %d bytes: %v", lines, longest, err)
	}
	lines, broken := 0, errors.New("broken")
	err := rows.Print(count, Text, func(yield func(int, error) bool) {
		list(func(i int, _ error) bool { return i < 10 && yield(i, nil) })
		yield(0, broken)
	})
	if !errors.Is(err, broken) || lines != 11 {
		t.Errorf("of a listing that breaks off after 10: %d lines, %v", lines, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
