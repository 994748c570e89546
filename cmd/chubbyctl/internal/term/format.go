package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
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

// encodeJSON returns an object as one line.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return b.Bytes(), err
}

// escapeInvisible escapes what a terminal would obey or not show, and encoding/json
// writes as it is. The JSON means the same.
func escapeInvisible(line []byte) []byte {
	return escapeIn(line, func(r rune) (text string) {
		for _, unit := range utf16.Encode([]rune{r}) {
			text += fmt.Sprintf(`\u%04x`, unit)
		}
		return text
	})
}

// escapeIn replaces what is to be escaped.
func escapeIn(text []byte, escape func(rune) string) []byte {
	if !bytes.ContainsFunc(text, escapable) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if escapable(r) {
			b.WriteString(escape(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

func escapable(r rune) bool { return r != '\n' && IsInvisible(r) }

// ForPrograms reports whether f is one of the formats that programs read.
func (f Format) ForPrograms() bool { return f == JSON || f == YAML }

// Print writes one object for programs: as a line of JSON, or as a document of YAML with the
// same fields.
func (f Format) Print(w io.Writer, v any) error {
	line, err := encodeJSON(v)
	if err != nil {
		return err
	}
	if f == YAML {
		line, err = toYAML(line)
	} else {
		line = escapeInvisible(line)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(line)
	return err
}

// toYAML writes a JSON object as a document of YAML. JSON is YAML, so only the layout
// changes. Strings keep their quotes: without them "no" and "1e3" would be something else.
func toYAML(object []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(object, &document); err != nil {
		return nil, err
	}
	layOut(&document)
	out := bytes.NewBufferString("---\n")
	encoder := yaml.NewEncoder(out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	return escapeInYAML(out.Bytes()), nil
}

// layOut has everything but strings in the layout of YAML, and the names of fields without
// quotes.
func layOut(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode {
		n.Style = 0
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && !strings.ContainsFunc(child.Value, IsInvisible) {
			child.Style = 0
			continue
		}
		layOut(child)
	}
}

// escapeInYAML escapes what a terminal would obey or not show. It is inside of quotes only.
func escapeInYAML(document []byte) []byte {
	return escapeIn(document, func(r rune) string {
		if utf8.RuneLen(r) > 3 {
			return fmt.Sprintf(`\U%08x`, r)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}
