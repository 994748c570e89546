package term

import (
	"fmt"
	"io"
	"strings"
)

// Format is what -o asks for.
type Format string

// The formats. Wide is Text that is not kept to the width of the terminal.
const (
	Text Format = "text"
	Wide Format = "wide"
	JSON Format = "json"
	YAML Format = "yaml"
)

// IsValid reports whether f is one of the formats.
func (f Format) IsValid() bool { return f == Text || f == Wide || f.ForPrograms() }

// Notice writes something that the user should know while things run.
func (f Format) Notice(w io.Writer, text string) {
	if f.ForPrograms() {
		_ = f.Print(w, map[string]string{"notice": text}) // if it cannot be written, nobody reads it
		return
	}
	Remark(w, "%s", text)
}

// Remark writes a message for people to standard error. Its first word decides the colour.
func Remark(w io.Writer, format string, args ...any) {
	meaning, text := Plain, Printable(fmt.Sprintf(format, args...))
	switch {
	case strings.HasPrefix(text, "jeopardy"):
		meaning = Trouble
	case strings.HasPrefix(text, "waiting"):
		meaning = Waiting
	}
	style := StyleOf(w)
	fmt.Fprintln(w, message(style, Plain, meaning, text))
}

// Complain writes an error for people to standard error.
func Complain(w io.Writer, text string) {
	style := StyleOf(w)
	fmt.Fprintln(w, message(style, Trouble, Plain, Printable(text)))
}

// message returns a message, broken between words where it is wider than the terminal. Its
// first word is the name of the program, in the colour of one meaning, and the text is in that of another.
func message(style Style, name, meaning Meaning, text string) string {
	const who = "chubbyctl: "
	whole := style.Wrap(text, who)
	return style.Paint(name, who) + style.Paint(meaning, strings.TrimPrefix(whole, who))
}
