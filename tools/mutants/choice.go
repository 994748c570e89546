package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// changes are the lines that changed since a commit, by directory. Each has the name of its file, a colon and its number.
type changes map[string]map[string]bool

// chooserOf returns what decides which mutants of a package the flags ask for, or nil if there are none.
func (o options) chooserOf(path string, changed changes) chooser {
	lines := changed[path]
	if o.changed && len(lines) == 0 {
		return nil
	}
	return func(m *mutant) bool {
		at := func(line int) bool { return lines[m.file+":"+strconv.Itoa(line)] }
		hasChanged := !o.changed || at(m.line) || m.mark != nil && at(m.mark.line)
		return hasChanged && (!o.marks || m.mark != nil) && o.only.MatchString(m.file+":"+m.function)
	}
}

// git returns what a git command prints in a directory.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// changedSince returns the commit with which a branch is compared, and which that is in words. A shallow clone may
// have one commit only: then it is that, and what is not committed has changed.
func changedSince(ctx context.Context, dir string) (commit, is string, err error) {
	head, err := git(ctx, dir, "rev-parse", "--verify", "HEAD")
	if err != nil {
		return "", "", err
	}
	for _, main := range []string{"origin/main", "main"} {
		if base, err := git(ctx, dir, "merge-base", "HEAD", main); err == nil && base != head {
			return base, "where this branch left " + main, nil
		}
	}
	if before, err := git(ctx, dir, "rev-parse", "--verify", "HEAD~1"); err == nil {
		return before, "the commit before the last", nil
	}
	return head, "the last commit, because this clone has none before it", nil
}

var (
	hunk   = regexp.MustCompile(`^@@ -\S+ \+(\d+)`)
	colour = regexp.MustCompile(`\x1b\[[0-9;]*m`)
)

// changedLines returns the lines below a directory that changed since a commit. Lines that only moved have not changed: git
// shows them in a colour of their own.
func changedLines(ctx context.Context, dir, commit string) (changes, error) {
	const moved = "\x1b[34m+" // blue
	diff, err := git(ctx, dir, "-c", "color.diff.new=green", "-c", "color.diff.newMoved=blue", "diff", "-U0", "--color=always", "--color-moved=blocks",
		"--color-moved-ws=ignore-all-space", "--no-ext-diff", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/", "--relative", commit, "--", "*.go")
	if err != nil {
		return nil, fmt.Errorf("the lines that changed since %s: %w", commit, err)
	}
	changed := changes{}
	file, line := "", 0
	for coloured := range strings.Lines(diff) {
		text := strings.TrimSpace(colour.ReplaceAllString(coloured, ""))
		if found := hunk.FindStringSubmatch(text); found != nil {
			line, _ = strconv.Atoi(found[1])
		} else if name, ok := strings.CutPrefix(text, "+++ b/"); ok {
			file = name
		} else if strings.HasPrefix(text, "+") {
			if in := "./" + path.Dir(file); !strings.HasPrefix(coloured, moved) {
				if changed[in] == nil {
					changed[in] = map[string]bool{}
				}
				changed[in][path.Base(file)+":"+strconv.Itoa(line)] = true
			}
			line++
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
