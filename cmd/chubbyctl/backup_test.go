package main

import (
	"strings"
	"testing"
)

// What is no whole backup is refused before a cell is looked for, also when it comes from a pipe.
func TestBackupsFromPipesAreChecked(t *testing.T) {
	for text, want := range map[string]string{"": "unexpected EOF", "\x1f\x8b" + strings.Repeat("x", 20): "it is compressed", strings.Repeat("x", 20): "it begins with"} {
		for _, args := range [][]string{{"cell", "restore", "-", "foo", "--yes"}, {"cell", "backup", "verify", "-"}, {"cell", "backup", "show", "-"}} {
			if _, err := execute(t, strings.NewReader(text), args...); exitCode(err) != exitFailed || !strings.Contains(err.Error(), "standard input: ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%q of %q: %v, want %s", args, text, err, want)
			}
		}
	}
}
