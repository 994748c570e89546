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

// control runs the tests that have failed without a safeguard, with every safeguard in place. A
// test that fails then, too, has proved nothing: a safeguard that only such tests noticed loses its
// row.
func (p *page) control(root string, tried []safeguard) error {
	tests := map[string]map[string]bool{} // by package
	for _, s := range tried {
		if tests[s.pkg] == nil {
			tests[s.pkg] = map[string]bool{}
		}
		for _, name := range p.tests[s.name] {
			tests[s.pkg][name] = true
		}
	}
	var unnoticed []error
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		if len(tests[pkg]) == 0 {
			continue
		}
		names := slices.Sorted(maps.Keys(tests[pkg]))
		fmt.Printf("control of %d tests in %s\n", len(names), pkg)
		module, below := moduleOf(root, pkg)
		cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-timeout=30m", "-v", "-run", "^("+strings.Join(names, "|")+")$", below)
		cmd.Dir = module
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		red := failedTests(out)
		if len(red) == 0 {
			return fmt.Errorf("the control of %s: %w: %s", pkg, err, out)
		}
		for _, s := range tried {
			noticed := p.tests[s.name]
			if s.pkg != pkg || len(noticed) == 0 || slices.ContainsFunc(noticed, func(name string) bool { return !slices.Contains(red, name) }) {
				continue
			}
			unnoticed = append(unnoticed, fmt.Errorf("%s: %s fails with it, too", s.name, strings.Join(noticed, ", ")), p.removeRow(s))
		}
	}
	return errors.Join(unnoticed...)
}

// failedTests returns the tests that failed, from the output of go test.
func failedTests(out []byte) []string {
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^--- FAIL: (\S+)`).FindAllStringSubmatch(string(out), -1) {
		names = append(names, m[1])
	}
	return names
}

// testNames returns the test names in an entry's regular expression.
func testNames(expression string) []string {
	var names []string
	for name := range strings.SplitSeq(expression, "|") {
		name, _, _ = strings.Cut(name, "/")
		names = append(names, strings.Trim(name, "^$"))
	}
	return names
}
