package sequencer_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every block of Go in docs/sequencers.md is, apart from indentation, in a file
// that is compiled and tested.
func TestPageShowsTestedCode(t *testing.T) {
	level := func(text string) string { return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(text, "") }
	read := func(name string) string {
		t.Helper()
		text := ok(os.ReadFile(name))(t)
		return string(text)
	}
	var sources string
	for _, name := range []string{
		"example_test.go", "seqgrpc/example_test.go", "seqhttp/example_test.go", "../client/checker_real_test.go", "../examples/sqlfence/fence.go",
	} {
		sources += level(read(name))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read("../docs/sequencers.md"), -1)
	if len(blocks) < 5 {
		t.Fatalf("the page has %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(sources, level(block[1])) {
			t.Errorf("this block is in none of the files:\n%s", block[1])
		}
	}
}
