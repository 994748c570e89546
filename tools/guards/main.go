// Command guards removes one safeguard of Chubby at a time and runs the tests
// that are to notice. It fails if one of them passes without its guard, or, as it
// finds out in the end, fails with it. Run in the tools directory; with -docs it writes the table of docs/guards.md, and with
// -only as well the rows of some of them.
//
// The source is not touched: each guard is taken out in an overlay, which the
// go command compiles instead of the file.
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

// guard is a safeguard, how to take it out, and who is to notice.
type guard struct {
	name string
	file string // below the root of the repository
	old  string // must stand in the file exactly once
	new  string
	pkg  string
	test string // regular expression of test names
}

func main() {
	only := flag.String("only", "", "run only the guards whose names match this regular expression")
	docs := flag.String("docs", "", "write the table to this file")
	missing := flag.Bool("missing", false, "run only the guards that have no row in the file, such as after an interruption")
	flag.Parse()
	if err := run(regexp.MustCompile(*only), *docs, *missing); err != nil {
		fmt.Fprintf(os.Stderr, "guards: %v\n", err)
		os.Exit(1)
	}
}

func run(only *regexp.Regexp, docs string, missing bool) error {
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
	if err != nil {
		return err
	}
	var missed []error
	var tried []guard
	for _, g := range guards() {
		if _, done := p.rows[g.name]; !only.MatchString(g.name) || missing && done {
			continue
		}
		began := time.Now()
		caught, err := g.takeOut(root, dir)
		if err != nil {
			missed = append(missed, fmt.Errorf("%s: %w", g.name, err))
			fmt.Printf("MISSED  %-44s %v\n", g.name, err)
			if err := p.missed(g); err != nil {
				return err
			}
			continue
		}
		fmt.Printf("caught  %-44s by %s in %.1f s\n", g.name, strings.Join(caught, ", "), time.Since(began).Seconds())
		if err := p.caught(g, caught); err != nil {
			return err
		}
		tried = append(tried, g)
	}
	if missing { // those of a run that was interrupted have not been
		tried = guards()
	}
	missed = append(missed, p.control(root, tried))
	return errors.Join(missed...)
}

// takeOut compiles the tests without the guard and runs them; they have to fail,
// and not for want of compiling.
func (g guard) takeOut(root, dir string) (caught []string, err error) {
	file := filepath.Join(root, g.file)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(text), g.old); n != 1 {
		return nil, fmt.Errorf("%q stands in %s %d times: bring the guard's entry up to date", g.old, g.file, n)
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), g.old, g.new, 1)), 0o600); err != nil {
		return nil, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return nil, err
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-timeout=300s", "-v", "-run", g.test, g.pkg)
	cmd.Dir = root
	// In the environment, so that it holds for binaries that a test builds.
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlayFile))
	out, err := cmd.CombinedOutput()
	caught = failed(out)
	switch {
	case err == nil:
		return nil, fmt.Errorf("no test of %s in %s noticed it", g.test, g.pkg)
	case len(caught) == 0 && strings.Contains(string(out), "panic:"):
		return named(g.test), nil // by a panic
	case len(caught) == 0:
		return nil, fmt.Errorf("the tests did not run: %s", out)
	}
	return caught, nil
}
