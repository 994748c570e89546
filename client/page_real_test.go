//go:build linux

package client_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every block of Go in docs/files-from-go.md is, apart from indentation, in an example that is run.
func TestFilesPageShowsTestedCode(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(string(text), "")
	}
	examples := read("example_files_test.go") + read("recipe/example_output_test.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read("../docs/files-from-go.md"), -1)
	if len(blocks) != 7 {
		t.Errorf("the page has %d blocks of Go; want 7", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(examples, block[1]) {
			t.Errorf("this code is in no example:\n%s", block[1])
		}
	}
}
