package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEverySafeguardFits checks, without running anything, that each entry fits the
// source: `make guards` takes hours, and a change that breaks an entry should be noticed
// before.
func TestEverySafeguardFits(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range safeguards() {
		if names[s.name] {
			t.Errorf("two safeguards are called %q", s.name)
		}
		names[s.name] = true
		text, err := os.ReadFile(filepath.Join(root, s.file))
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
			continue
		}
		if n := strings.Count(string(text), s.old); n != 1 {
			t.Errorf("%s: %q is in %s %d times; bring the entry up to date", s.name, s.old, s.file, n)
		}
		if _, err := os.Stat(filepath.Join(root, s.pkg)); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

// TestModuleOf: a package is tested in the module that has it, which may be below the root.
func TestModuleOf(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for pkg, want := range map[string][2]string{
		"./cell/internal/disk":                {"", "./cell/internal/disk"},
		"./contrib/gocron":                    {"contrib/gocron", "./"},
		"./contrib/promsd/cmd/chubby-promsd":  {"contrib/promsd", "./cmd/chubby-promsd"},
		"./contrib/leaderelection/chubbylock": {"contrib", "./leaderelection/chubbylock"},
		"contrib/gocron":                      {"contrib/gocron", "./"}, // the directory of a file
		"client":                              {"", "client"},
	} {
		if dir, below := moduleOf(root, pkg); dir != filepath.Join(root, want[0]) || below != want[1] {
			t.Errorf("%s is %s in %s; want %s in %s", pkg, below, dir, want[1], want[0])
		}
	}
}

// TestEverySafeguardHasARow checks that docs/dev/guards.md has a row for each entry: a test must
// have failed without the safeguard before an entry is kept.
func TestEverySafeguardHasARow(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	p, err := openPage(filepath.Join(root, "docs", "dev", "guards.md"), root)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range safeguards() {
		switch row, ok := p.rows[s.name]; {
		case !ok:
			t.Errorf("%q has no row; run: go -C tools run ./guards -missing -docs ../docs/dev/guards.md", s.name)
		case s.placed(row) != row:
			t.Errorf("the row of %q names another file than %s; run: go -C tools run ./guards -only '^$' -docs ../docs/dev/guards.md", s.name, s.file)
		}
		delete(p.rows, s.name)
	}
	for name := range p.rows {
		t.Errorf("docs/dev/guards.md has a row for %q, which is no entry any more; remove it", name)
	}
}
