package term

import (
	"io"
	"os"
	"strings"

	"github.com/fatih/color"
	"golang.org/x/term"
)

// Style is how text for people looks: on a terminal it has colours and is kept to a
// width; in a pipe, where programs read, neither. The zero Style is that of a pipe.
type Style struct {
	Terminal bool
	Width    int // columns of the terminal; 0 is no bound
	Height   int // lines of the terminal; 0 is no bound
	colour   bool
}

// StyleOf returns the style for what is written to w. NO_COLOR (no-color.org) and
// TERM=dumb turn the colours off, and leave the width.
func StyleOf(w io.Writer) Style {
	if s, ok := w.(*Speaker); ok {
		return StyleOf(s.w)
	}
	f, ok := Bare(w).(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Style{}
	}
	s := Style{Terminal: true, colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, height, err := term.GetSize(int(f.Fd())); err == nil {
		s.Width, s.Height = width, height
	}
	return s
}

// IsTerminal reports whether r is a terminal, at which somebody may type.
func IsTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Meaning is what a piece of text is for its reader. There are few, so that a colour
// says something.
type Meaning uint8

// The meanings, each with a colour of its own.
const (
	Plain     Meaning = iota
	Heading           // the names of columns
	Trouble           // somebody should act: no master, not healthy, jeopardy, lost
	Waiting           // it takes its time: delayed, queued, behind
	Secondary         // seldom looked at
)

// Paint returns a text in the colour of its meaning.
func (s Style) Paint(m Meaning, text string) string {
	if !s.colour || m == Plain || text == "" {
		return text
	}
	c := color.New([]color.Attribute{Heading: color.Bold, Trouble: color.FgRed, Waiting: color.FgYellow, Secondary: color.Faint}[m])
	c.EnableColor() // the library itself looks at standard output only
	return c.Sprint(text)
}

// Name returns a node's name to be written: in a pipe as it is, for programs, and on a
// terminal without what the terminal would obey.
func (s Style) Name(text string) string {
	if s.Terminal {
		return Printable(text)
	}
	return text
}

// Wrap breaks a sentence between words so that it fits the terminal. The first line
// begins with first, and the others are indented as far. What is in quotes, as a command that
// somebody may paste, stays whole. In a pipe it is one line, as it is.
func (s Style) Wrap(sentence, first string) string {
	if s.Width == 0 {
		return first + sentence
	}
	indent := strings.Repeat(" ", columns(first))
	var b strings.Builder
	b.WriteString(first)
	at := columns(first)
	for i, word := range unbroken(sentence) {
		switch {
		case i == 0:
		case at+1+columns(word) > s.Width:
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

// unbroken takes a sentence apart between words, but not where there is a space in 'quotes'.
func unbroken(sentence string) []string {
	var parts []string
	words := strings.Split(sentence, " ") // two spaces may be in a name: they stay
	for i := 0; i < len(words); i++ {
		part := words[i]
		if strings.HasPrefix(strings.TrimLeft(part, "("), "'") {
			if n := quotedWords(words[i:]); n > 0 {
				part = strings.Join(words[i:i+n], " ")
				i += n - 1
			}
		}
		parts = append(parts, part)
	}
	return parts
}

// quotedWords returns how many words there are until quotes end that the first begins with; 0
// if they do not end soon.
func quotedWords(words []string) int {
	const most = 12
	for i, word := range words[:min(len(words), most)] {
		if i == 0 {
			word = strings.TrimLeft(word, "(")[1:]
		}
		if strings.HasSuffix(strings.TrimRight(word, ",.;:)?"), "'") {
			return i + 1
		}
	}
	return 0
}
