package term

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

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
