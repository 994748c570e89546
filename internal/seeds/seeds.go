// Package seeds gives fuzz tests the inputs that fuzzing has found, from one file for each test.
//
// testdata/FuzzX.seeds has one input a line. Its values are separated by tabs, and written as the go command writes them into
// testdata/fuzz/FuzzX when it finds a failure: who keeps such an input joins its lines, without the first, and puts them at the end.
package seeds

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Add adds the inputs that are kept for a fuzz test, in the order in which they are written. A file that is missing, empty or malformed
// fails the test.
func Add(f *testing.F) {
	f.Helper()
	name := filepath.Join("testdata", f.Name()+".seeds")
	text, err := os.ReadFile(name)
	if err != nil || len(text) == 0 {
		f.Fatalf("read the inputs of %s: %v, %d bytes", f.Name(), err, len(text))
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		values, err := parse(strings.TrimSuffix(line, "\n"))
		if err != nil {
			f.Fatalf("%s:%d: %v", name, number, err)
		}
		f.Add(values...)
	}
}

func parse(line string) (values []any, err error) {
	for text := range strings.SplitSeq(line, "\t") {
		kind, literal, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(")
		var value any
		switch kind {
		case "string":
			value, err = strconv.Unquote(literal)
		case "[]byte":
			var s string
			s, err = strconv.Unquote(literal)
			value = []byte(s)
		case "byte":
			var c rune
			c, _, _, err = strconv.UnquoteChar(strings.TrimPrefix(literal, "'"), '\'')
			value = byte(c)
		case "bool":
			value, err = strconv.ParseBool(literal)
		case "uint64":
			value, err = strconv.ParseUint(literal, 0, 64)
		default:
			err = fmt.Errorf("%q is of no known type", text)
		}
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}
