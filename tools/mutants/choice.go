package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// chooserOf returns what decides which mutants of a package the flags ask for, or nil if there are none.
func (o options) chooserOf(path string) (chooser, error) {
	var changed map[string]map[int]bool
	if o.diff != "" {
		var err error
		if changed, err = changedLines(filepath.Join(o.root, path), o.diff); err != nil || len(changed) == 0 {
			return nil, err
		}
	}
	return func(m *mutant) bool {
		lines := changed[m.file]
		hasChanged := changed == nil || lines[m.line] || m.mark != nil && lines[m.mark.line]
		return hasChanged && (!o.marks || m.mark != nil) && o.only.MatchString(m.file+":"+m.function)
	}, nil
}

var hunk = regexp.MustCompile(`(?m)^\+\+\+ b/(.+)$|^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// changedLines returns the lines that changed since a commit, of each file of a directory.
func changedLines(dir, commit string) (map[string]map[int]bool, error) {
	diff := exec.CommandContext(context.Background(), "git", "-C", dir, "diff", "-U0", "--no-ext-diff", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/", "--relative", commit, "--", "*.go")
	out, err := diff.Output()
	if err != nil {
		return nil, fmt.Errorf("the lines of %s that changed since %s: %w", dir, commit, err)
	}
	changed := map[string]map[int]bool{}
	file := ""
	for _, found := range hunk.FindAllStringSubmatch(string(out), -1) {
		if found[1] != "" {
			file = found[1]
			continue
		}
		first, _ := strconv.Atoi(found[2])
		count := 1
		if found[3] != "" {
			count, _ = strconv.Atoi(found[3])
		}
		if changed[file] == nil {
			changed[file] = map[int]bool{}
		}
		for line := first; line < first+count; line++ {
			changed[file][line] = true
		}
	}
	return changed, nil
}

// choosePart returns the mutants that -part and -sample leave.
func (o options) choosePart(all []*mutant) ([]*mutant, error) {
	part, parts := 1, 1
	if o.part != "" {
		if n, err := fmt.Sscanf(o.part, "%d/%d", &part, &parts); n != 2 || err != nil || part < 1 || part > parts {
			return nil, fmt.Errorf("-part %s: write I/N, with I from 1 to N", o.part)
		}
	}
	var chosen []*mutant
	for i, m := range all {
		if i%parts == part-1 {
			chosen = append(chosen, m)
		}
	}
	if o.sample <= 0 || o.sample >= len(chosen) {
		return chosen, nil
	}
	var sample []*mutant
	for i := range o.sample {
		sample = append(sample, chosen[i*len(chosen)/o.sample])
	}
	return sample, nil
}
