package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
)

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
