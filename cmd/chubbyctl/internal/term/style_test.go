package term

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/creack/pty"
)

func TestWrapped(t *testing.T) {
	sentence := "one two three four five"
	if got := (Style{}).Wrap(sentence, "- "); got != "- "+sentence {
		t.Errorf("in a pipe: %q", got)
	}
	if got := (Style{Width: 12}).Wrap(sentence, "- "); got != "- one two\n  three four\n  five" {
		t.Errorf("at 12 columns: %q", got)
	}
	for sentence, want := range map[string]string{
		"see 'a b c', or 'd e'": "see 'a b c',\nor 'd e'",
		"a client's two words":  "a client's\ntwo words",
		"an 'open quote of ann": "an 'open\nquote of ann",
		"use '' or ('x y') now": "use '' or\n('x y') now",
		"no node '/a  b' here":  "no node\n'/a  b' here", // two spaces are two
	} {
		if got := (Style{Width: 12}).Wrap(sentence, ""); got != want {
			t.Errorf("%q at 12 columns: %q, want %q", sentence, got, want)
		}
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
		{"", "xterm", NewSpeaker(program), true, 80},
		{"1", "xterm", program, false, 80},
		{"", "dumb", program, false, 80},
		{"", "xterm", &bytes.Buffer{}, false, 0},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		s := StyleOf(c.out)
		if coloured := s.Paint(Trouble, "x") != "x"; coloured != c.coloured || s.Width != c.width {
			t.Errorf("NO_COLOR=%q TERM=%q on %T: coloured %t, width %d", c.noColor, c.term, c.out, coloured, s.Width)
		}
	}
	if file, err := os.CreateTemp(t.TempDir(), "out"); err != nil {
		t.Fatal(err)
	} else if s := StyleOf(file); s != (Style{}) {
		t.Errorf("a file is taken for a terminal: %+v", s)
	}
}
