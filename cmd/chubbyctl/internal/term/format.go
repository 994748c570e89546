package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf16"

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

// escape escapes what a terminal would obey or not show, and encoders write as it is. It is inside of quotes only, and means the same.
func (f Format) escape(text []byte) []byte {
	if !bytes.ContainsFunc(text, escapable) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case !escapable(r):
			b.WriteRune(r)
		case f == YAML && r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
	}
	return b.Bytes()
}

func escapable(r rune) bool { return r != '\n' && IsInvisible(r) }

// ForPrograms reports whether f is one of the formats that programs read.
func (f Format) ForPrograms() bool { return f == JSON || f == YAML }

// Fields are those of an object for programs, in their order: a name, its value, and so on.
type Fields []any

// With returns the fields with another one, unless it is nil, has the zero value, or is an empty list or map.
func (f Fields) With(name string, value any) Fields {
	switch v := reflect.ValueOf(value); {
	case !v.IsValid(), v.IsZero(), (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0:
		return f
	}
	return append(f, name, value)
}

// MarshalJSON implements json.Marshaler.
func (f Fields) MarshalJSON() ([]byte, error) {
	b := []byte("{")
	for i, part := range f {
		text, err := encodeJSON(part)
		if err != nil {
			return nil, err
		}
		b = append(append(b, bytes.TrimSuffix(text, []byte("\n"))...), ":,"[i%2])
	}
	return append(bytes.TrimSuffix(b, []byte(",")), '}'), nil
}

// Each returns what f returns for each of a list: an empty list, not nil, for none.
func Each[T, F any](list []T, f func(T) F) []F {
	all := make([]F, len(list))
	for i, one := range list {
		all[i] = f(one)
	}
	return all
}

// Print writes one object for programs: as a line of JSON, or as a document of YAML with the
// same fields.
func (f Format) Print(w io.Writer, v any) error {
	line, err := encodeJSON(v)
	if err != nil {
		return err
	}
	if f == YAML {
		if line, err = toYAML(line); err != nil {
			return err
		}
	}
	_, err = w.Write(f.escape(line))
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
	return out.Bytes(), nil
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
