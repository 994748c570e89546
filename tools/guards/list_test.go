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

// TestEveryGuardHasARow checks that docs/guards.md has a row for each entry: that it was
// caught once, as each has to be before it is kept.
func TestEveryGuardHasARow(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	p, err := openPage(filepath.Join(root, "docs", "guards.md"), root)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range guards() {
		if _, ok := p.rows[g.name]; !ok {
			t.Errorf("%q has no row; run: go -C tools run ./guards -missing -docs ../docs/guards.md", g.name)
		}
		delete(p.rows, g.name)
	}
	for name := range p.rows {
		t.Errorf("docs/guards.md has a row for %q, which is no entry any more; remove it", name)
	}
}
