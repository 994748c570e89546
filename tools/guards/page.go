package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

// page is the table of docs/dev/guards.md. It is written after each safeguard, so that a run may be
// interrupted, or may be of some safeguards only. A safeguard without which the tests pass loses
// its row.
type page struct {
	file string // "" if none is to be written
	at   string // the commit
	rows map[string]string

	tests map[string][]string // those that fail without each safeguard
}

const pageHead = `# Safeguards, and the tests that fail without them

Made by ` + "`make guards`" + `, which takes each safeguard out of the code, one at a time,
and runs the tests that should fail then. A safeguard is in this page if they did,
with the last commit at which that was tried; %s.

| safeguard | file | tests that fail without it | commit |
|---|---|---|---|
`

// openPage reads the existing rows.
func openPage(file, root string) (*page, error) {
	p := &page{file: file, rows: map[string]string{}, tests: map[string][]string{}}
	if file == "" {
		return p, nil
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for row := range strings.Lines(string(text)) {
		if cells := strings.Split(row, " | "); len(cells) == 4 && cells[1] != "file" {
			name := strings.TrimPrefix(cells[0], "| ")
			p.rows[name] = row
			p.tests[name] = strings.Split(strings.Trim(cells[2], "`"), "`, `")
		}
	}
	p.at, err = commit(root)
	return p, err
}

// commit names the commit that is checked out.
func commit(root string) (string, error) {
	head, err := exec.Command("git", "-C", root, "log", "-1", "--format=%h").Output()
	if err != nil {
		return "", fmt.Errorf("read the commit: %w", err)
	}
	changed, err := exec.Command("git", "-C", root, "status", "--porcelain", "--untracked-files=no", "--", "*.go").Output()
	if err != nil {
		return "", fmt.Errorf("look for changes: %w", err)
	}
	name := string(bytes.TrimSpace(head))
	if len(changed) > 0 {
		name += " and changes"
	}
	return name, nil
}

// writeRow writes the row of a safeguard.
func (p *page) writeRow(s safeguard, tests []string) error {
	p.tests[s.name] = tests
	p.rows[s.name] = fmt.Sprintf("| %s | `%s` | `%s` | %s |\n", s.name, s.file, strings.Join(tests, "`, `"), p.at)
	return p.write()
}

// removeRow removes the row of a safeguard.
func (p *page) removeRow(s safeguard) error {
	delete(p.rows, s.name)
	delete(p.tests, s.name)
	return p.write()
}

// placed returns a row with the present file of the safeguard: after a move of
// code, the safeguard need not be taken out again.
func (s safeguard) placed(row string) string {
	cells := strings.SplitN(row, " | ", 3)
	if len(cells) < 3 {
		return row
	}
	return cells[0] + " | `" + s.file + "` | " + cells[2]
}

func (p *page) write() error {
	if p.file == "" {
		return nil
	}
	var table strings.Builder
	all, shown := safeguards(), 0
	for _, s := range all {
		if row, ok := p.rows[s.name]; ok {
			shown++
			table.WriteString(s.placed(row))
		}
	}
	count := fmt.Sprintf("all %d are", shown)
	if shown < len(all) {
		count = fmt.Sprintf("%d of %d are", shown, len(all))
	}
	return os.WriteFile(p.file, []byte(fmt.Sprintf(pageHead, count)+table.String()), 0o644)
}
