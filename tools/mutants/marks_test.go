package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxReplacements is how many mutants of the project marks may describe. Each is one more thing to read
// beside the code; what a rule makes needs none.
const maxReplacements = 400

// TestMarksOfTheProject compiles the mutants that marks describe, and looks for the tests that they
// name: the marks of a line that has changed must fit it.
func TestMarksOfTheProject(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	replacements := 0
	for _, path := range markedPackages(t, root) {
		module, below := moduleOf(root, path)
		words := " " + below
		if module != "." {
			words = " -root ../" + module + " -marks " + below
		}
		if !regexp.MustCompile(regexp.QuoteMeta(words) + `\s`).Match(makefile) {
			t.Errorf("make mutants does not run the marks of %s: name it in the Makefile", path)
		}
		p, err := loadPackage(t.Context(), filepath.Join(root, module), below)
		if err == nil {
			err = p.mutate(func(m *mutant) bool { return m.mark != nil })
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		replacements += len(p.mutants)
		if err := checkRewritten(p); err != nil {
			t.Errorf("%s with the mutants of its marks: %v", path, err)
		}
		for _, m := range p.mutants {
			if m.mark.test != "" && !hasTest(t, filepath.Join(root, module, m.mark.pkg), m.mark.test) {
				t.Errorf("%s/%v: %s has no test %s", path, m, m.mark.pkg, m.mark.test)
			}
		}
	}
	if replacements == 0 || replacements > maxReplacements {
		t.Errorf("marks describe %d mutants, and may describe %d: remove those that defend least", replacements, maxReplacements)
	}
}

// moduleOf returns the directory of the module that a package is in, and the package's path in that.
func moduleOf(root, path string) (module, below string) {
	for module = filepath.Clean(path); module != "."; module = filepath.Dir(module) {
		if _, err := os.Stat(filepath.Join(root, module, "go.mod")); err == nil {
			break
		}
	}
	below, _ = filepath.Rel(module, path) // both are below the root
	if below != "." {
		below = "./" + below
	}
	return filepath.ToSlash(module), filepath.ToSlash(below)
}

// checkRewritten checks the types of a package with its mutants.
func checkRewritten(p *sourcePackage) error {
	rewritten := &sourcePackage{path: p.path, set: p.set, exports: p.exports}
	for name, text := range p.rewritten {
		if err := rewritten.add(name, []byte(text)); err != nil {
			return err
		}
	}
	_, err := rewritten.checkTypes()
	return err
}

// markedPackages returns the packages that have marks.
func markedPackages(t *testing.T, root string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == "tools" || strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil || !regexp.MustCompile(`(?m)^\s+//mutant: `).Match(text) {
			return err
		}
		below, err := filepath.Rel(root, filepath.Dir(file))
		paths = append(paths, "./"+filepath.ToSlash(below))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
