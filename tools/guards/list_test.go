package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryGuardFits checks, without running anything, that each entry still
// fits the source: `make guards` takes an hour, and an entry that went stale
// should be noticed with the change that made it so.
func TestEveryGuardFits(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, g := range guards() {
		if names[g.name] {
			t.Errorf("two guards are called %q", g.name)
		}
		names[g.name] = true
		text, err := os.ReadFile(filepath.Join(root, g.file))
		if err != nil {
			t.Errorf("%s: %v", g.name, err)
			continue
		}
		if n := strings.Count(string(text), g.old); n != 1 {
			t.Errorf("%s: %q is in %s %d times; bring the entry up to date", g.name, g.old, g.file, n)
		}
		if _, err := os.Stat(filepath.Join(root, g.pkg)); err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
	}
}
