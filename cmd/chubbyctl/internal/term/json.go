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
	if !bytes.ContainsFunc(line, escapable) {
		return line
	}
	var b bytes.Buffer
	for _, r := range string(line) {
		if !escapable(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.Bytes()
}

func escapable(r rune) bool { return r != '\n' && IsInvisible(r) }
