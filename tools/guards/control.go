package main

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// control runs the tests that have noticed what was taken out, with everything in its
// place. A test that fails then too has shown nothing: guards that only such tests
// noticed are missed.
func (p *page) control(root string, tried []guard) error {
	tests := map[string]map[string]bool{} // by package
	for _, g := range tried {
		if tests[g.pkg] == nil {
			tests[g.pkg] = map[string]bool{}
		}
		for _, name := range p.tests[g.name] {
			tests[g.pkg][name] = true
		}
	}
	var missed []error
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		if len(tests[pkg]) == 0 {
			continue
		}
		names := slices.Sorted(maps.Keys(tests[pkg]))
		fmt.Printf("control of %d tests in %s\n", len(names), pkg)
		cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-timeout=30m", "-v", "-run", "^("+strings.Join(names, "|")+")$", pkg)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		red := failed(out)
		if len(red) == 0 {
			return fmt.Errorf("the control of %s: %w: %s", pkg, err, out)
		}
		for _, g := range tried {
			noticed := p.tests[g.name]
			if g.pkg != pkg || len(noticed) == 0 || slices.ContainsFunc(noticed, func(name string) bool { return !slices.Contains(red, name) }) {
				continue
			}
			missed = append(missed, fmt.Errorf("%s: %s fails with it, too", g.name, strings.Join(noticed, ", ")), p.missed(g))
		}
	}
	return errors.Join(missed...)
}

// failed returns the tests that failed, by what go test printed.
func failed(out []byte) []string {
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^--- FAIL: (\S+)`).FindAllStringSubmatch(string(out), -1) {
		names = append(names, m[1])
	}
	return names
}

// named returns the names of the tests that a regular expression of an entry names.
func named(expression string) []string {
	var names []string
	for name := range strings.SplitSeq(expression, "|") {
		name, _, _ = strings.Cut(name, "/")
		names = append(names, strings.Trim(name, "^$"))
	}
	return names
}
