package chubby_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestConformance runs every test that docs/conformance.md names, and fails
// unless each of them ran and passed: a page that promises what nothing shows is
// worse than none.
func TestConformance(t *testing.T) {
	page, err := os.ReadFile("docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string][]string{} // by package
	for _, match := range regexp.MustCompile("`([a-z]+)\\.((?:Test|Example)[A-Za-z0-9_/-]*)`").FindAllStringSubmatch(string(page), -1) {
		if !slices.Contains(named[match[1]], match[2]) {
			named[match[1]] = append(named[match[1]], match[2])
		}
	}
	if len(named) < 5 {
		t.Fatalf("the page names tests of %d packages only", len(named))
	}
	for _, pkg := range slices.Sorted(maps.Keys(named)) {
		t.Run(pkg, func(t *testing.T) {
			passed := run(t, "./"+pkg, named[pkg])
			for _, name := range named[pkg] {
				if !passed[name] {
					t.Errorf("%s.%s did not run and pass", pkg, name)
				}
			}
		})
	}
}

// run runs tests of one package and returns those that passed.
func run(t *testing.T, pkg string, names []string) map[string]bool {
	t.Helper()
	var tops []string
	for _, name := range names {
		top, _, _ := strings.Cut(name, "/")
		if !slices.Contains(tops, top) {
			tops = append(tops, top)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-run", "^("+strings.Join(tops, "|")+")$", pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	passed := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.Action == "pass" {
			passed[event.Test] = true
		}
	}
	return passed
}
