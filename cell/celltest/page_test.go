package celltest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/testing.md shows code that is compiled here: the tests, the application, and each row of the table in the
// application's test. All of it also runs, except the last block (package processes). The first block is a sketch.
func TestPageShowsTestedCode(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(string(text), "")
	}
	sources := read("example_test.go") + read("failover_test.go") + read("worker_test.go") + read("hosts_test.go") + read("processes/example_test.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read("../../docs/testing.md"), -1)
	if len(blocks) != 6 {
		t.Fatalf("the page has %d blocks of Go; want 6", len(blocks))
	}
	shown := append([]string{blocks[1][1], blocks[2][1], blocks[3][1], blocks[5][1]}, strings.SplitAfter(blocks[4][1], "false},\n")...)
	for _, code := range shown {
		for _, row := range strings.SplitAfter(code, "true},\n") {
			if !strings.Contains(sources, row) {
				t.Errorf("this code is in none of the files:\n%s", row)
			}
		}
	}
}
