// Command guards takes one safeguard out of Chubby at a time, and runs the tests that should fail
// without it. It fails if they pass. In the end it runs these tests with all safeguards, and fails
// if they fail then, too. Run it in the tools directory. With -docs it writes the table of
// docs/dev/guards.md, and with -only some of its rows.
//
// It does not change the source: it takes each safeguard out in an overlay, which the go command
// compiles instead of the file.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// safeguard is an entry of the table: how to take a safeguard out, and the tests that should then
// fail.
type safeguard struct {
	name string
	file string // below the root of the repository
	old  string // must be in the file exactly once
	new  string // the replacement, without the safeguard
	pkg  string // below the root, as in "./cell" or "./contrib/gocron", which is in another module
	test string // regular expression of test names
}

func main() {
	only := flag.String("only", "", "run only the safeguards whose names match this regular expression")
	docs := flag.String("docs", "", "write the table to this file")
	missing := flag.Bool("missing", false, "run only the safeguards that have no row in the file, such as after an interruption")
	flag.Parse()
	if err := tryAll(regexp.MustCompile(*only), *docs, *missing); err != nil {
		fmt.Fprintf(os.Stderr, "guards: %v\n", err)
		os.Exit(1)
	}
}

func tryAll(only *regexp.Regexp, docs string, missing bool) error {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "chubby-guards-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := openPage(docs, root)
	if err == nil {
		err = p.write() // with the files that the safeguards are in now
	}
	if err != nil {
		return err
	}
	var unnoticed []error
	var tried []safeguard
	for _, s := range safeguards() {
		if _, done := p.rows[s.name]; !only.MatchString(s.name) || missing && done {
			continue
		}
		began := time.Now()
		failed, err := s.takeOut(root, dir)
		if err != nil {
			unnoticed = append(unnoticed, fmt.Errorf("%s: %w", s.name, err))
			fmt.Printf("NOBODY NOTICED  %-44s %v\n", s.name, err)
			if err := p.removeRow(s); err != nil {
				return err
			}
			continue
		}
		fmt.Printf("noticed  %-44s by %s in %.1f s\n", s.name, strings.Join(failed, ", "), time.Since(began).Seconds())
		if err := p.writeRow(s, failed); err != nil {
			return err
		}
		tried = append(tried, s)
	}
	if missing { // the interrupted run had no control
		tried = safeguards()
	}
	unnoticed = append(unnoticed, p.control(root, tried))
	return errors.Join(unnoticed...)
}

// replacement returns the file without the safeguard.
func (s safeguard) replacement(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, s.file))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(text), s.old); n != 1 {
		return nil, fmt.Errorf("%q stands in %s %d times: bring the entry up to date", s.old, s.file, n)
	}
	return []byte(strings.Replace(string(text), s.old, s.new, 1)), nil
}

// writeOverlay writes what tells the go command to compile other files in the place of some.
func writeOverlay(dir string, replaced map[string]string) (file string, err error) {
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, overlay, 0o600)
}

// takeOut runs the tests without the safeguard, and returns those that failed. It returns an error
// if none failed, or if they did not compile.
func (s safeguard) takeOut(root, dir string) (failed []string, err error) {
	text, err := s.replacement(root)
	if err != nil {
		return nil, err
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return nil, err
	}
	overlayFile, err := writeOverlay(dir, map[string]string{filepath.Join(root, s.file): changed})
	if err != nil {
		return nil, err
	}
	module, pkg := moduleOf(root, s.pkg)
	cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-timeout=300s", "-v", "-run", s.test, pkg)
	cmd.Dir = module
	// In the environment, so that it also applies to binaries that a test
	// builds.
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlayFile))
	out, err := cmd.CombinedOutput()
	failed = failedTests(out)
	switch {
	case err == nil:
		return nil, fmt.Errorf("no test of %s in %s noticed it", s.test, s.pkg)
	case len(failed) == 0 && strings.Contains(string(out), "panic:"):
		return testNames(s.test), nil // by a panic
	case len(failed) == 0:
		return nil, fmt.Errorf("the tests did not run: %s", out)
	}
	return failed, nil
}

// moduleOf returns the directory of the module that has a package, and the package's path below
// that: the go command works in one module at a time.
func moduleOf(root, pkg string) (dir, below string) {
	dir, below = root, pkg
	parts := strings.Split(strings.TrimPrefix(pkg, "./"), "/")
	for i := range parts {
		inner := filepath.Join(root, filepath.Join(parts[:i+1]...))
		if _, err := os.Stat(filepath.Join(inner, "go.mod")); err == nil {
			dir, below = inner, "./"+strings.Join(parts[i+1:], "/")
		}
	}
	return dir, below
}
