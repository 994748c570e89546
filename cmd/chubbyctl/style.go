package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fatih/color"
	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// style is how text for people is dressed: with colours, and kept to a width, on
// a terminal; not at all in a pipe, where programs read. The zero style is that
// of a pipe.
type style struct {
	terminal bool
	colour   bool
	width    int // columns of the terminal; 0 is no bound
}

// styleOf is the style for what is written to w. NO_COLOR (no-color.org) and
// TERM=dumb turn the colours off, and leave the width.
func styleOf(w io.Writer) style {
	if s, ok := w.(*speaker); ok {
		return styleOf(s.w)
	}
	f, ok := bare(w).(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return style{}
	}
	s := style{terminal: true, colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		s.width = width
	}
	return s
}

// isTerminal reports whether somebody may be typing.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// paint is what a piece of text means; there are few, so that colour says
// something.
type paint uint8

const (
	plain     paint = iota
	heading         // the names of columns
	trouble         // somebody should act: no master, not healthy, jeopardy, lost
	waiting         // it takes its time: delayed, queued, behind
	secondary       // seldom looked at
)

// on dresses a text.
func (s style) on(p paint, text string) string {
	if !s.colour || p == plain || text == "" {
		return text
	}
	var attribute color.Attribute
	switch p {
	case heading:
		attribute = color.Bold
	case trouble:
		attribute = color.FgRed
	case waiting:
		attribute = color.FgYellow
	default:
		attribute = color.Faint
	}
	c := color.New(attribute)
	c.EnableColor() // the library's own test is of standard output only
	return c.Sprint(text)
}

// name writes a node's name as it is for programs, and without what could make
// a terminal do something for people.
func (s style) name(text string) string {
	if s.terminal {
		return printable(text)
	}
	return text
}

// printable escapes what a terminal would obey or not show: control characters,
// invisible ones, and bytes that are no UTF-8. Reasons, hosts and principals are
// other people's words.
func printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, invisible) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[i]), 16))
		case invisible(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// columns is how many columns of a terminal a text takes: two for most of
// Chinese, Japanese and Korean, none for a combining accent. The locale has no
// say in it.
func columns(text string) int { return widths().StringWidth(text) }

func widths() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

// shortened fits a text into some columns. A path keeps its end, in which
// neighbours differ, everything else its beginning.
func shortened(text string, most int) string {
	over := columns(text) - most
	switch {
	case over <= 0:
		return text
	case strings.HasPrefix(text, "/"):
		return "…" + widths().TruncateLeft(text, over+1, "")
	}
	return widths().Truncate(text, most, "…")
}

// wrapped breaks a sentence between words so that it fits the terminal, later
// lines below the first. In a pipe it is one line.
func (s style) wrapped(sentence, first string) string {
	indent := strings.Repeat(" ", columns(first))
	var b strings.Builder
	b.WriteString(first)
	at := columns(first)
	for i, word := range strings.Fields(sentence) {
		switch {
		case i == 0:
		case s.width > 0 && at+1+columns(word) > s.width:
			b.WriteString("\n" + indent)
			at = len(indent)
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += columns(word)
	}
	return b.String()
}
