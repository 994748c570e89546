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
)

// IsValid reports whether f is one of the formats.
func (f Format) IsValid() bool { return f == Text || f == Wide || f == JSON }

// Notice writes something that the user should know while things run.
func (f Format) Notice(w io.Writer, text string) {
	if f == JSON {
		_ = PrintJSON(w, map[string]string{"notice": text}) // if it cannot be written, nobody reads it
		return
	}
	Remark(w, "%s", text)
}

// Remark writes a line for people to standard error. Its first word decides the colour.
func Remark(w io.Writer, format string, args ...any) {
	meaning, text := Plain, Printable(fmt.Sprintf(format, args...))
	switch {
	case strings.HasPrefix(text, "jeopardy"):
		meaning = Trouble
	case strings.HasPrefix(text, "waiting"):
		meaning = Waiting
	}
	fmt.Fprintln(w, "chubbyctl: "+StyleOf(w).Paint(meaning, text))
}
