package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// page is docs/dev/nightly.md: a row and a section for each target that was run.
type page struct {
	file     string
	steps    []step
	rows     map[string]string // by target
	sections map[string]string
}

const pageHead = `# The last long runs

Made by ` + "`make nightly`" + `, which runs each target in turn, or by parts of it
(` + "`go -C tools run ./nightly -only fuzz`" + `). Each row is of the last time that its target was run.

| target | shows | result | took | when, and at which commit |
|---|---|---|--:|---|
`

const sectionHead = "\n## make "

// openPage reads the existing page.
func openPage(file string, steps []step) (*page, error) {
	p := &page{file: file, steps: steps, rows: map[string]string{}, sections: map[string]string{}}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	table, sections, _ := strings.Cut(string(text), sectionHead)
	for _, s := range steps {
		for row := range strings.Lines(table) {
			if strings.HasPrefix(row, "| `make "+s.target) {
				p.rows[s.target] = row
			}
		}
		for section := range strings.SplitSeq(sections, sectionHead) {
			if strings.HasPrefix(section, s.target+"\n") {
				p.sections[s.target] = strings.TrimRight(section, "\n") + "\n"
			}
		}
	}
	return p, nil
}

// checkout names the commit that is checked out.
func checkout(ctx context.Context, root string) (string, error) {
	name, err := exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--format=%h").Output()
	if err != nil {
		return "", fmt.Errorf("read the commit: %w", err)
	}
	return string(bytes.TrimSpace(name)), nil
}

// add writes the result of a step.
func (p *page) add(o outcome, at string) error {
	result := "passed"
	if o.err != nil {
		result = "**failed**: " + o.err.Error()
	}
	p.rows[o.target] = fmt.Sprintf("| `make %s` | %s | %s | %v | %s, %s, %s on %d processors |\n", strings.Join(append([]string{o.target}, o.args...), " "),
		o.shows, result, o.took.Round(time.Second), time.Now().UTC().Format(time.DateOnly), at, runtime.Version(), runtime.NumCPU())
	p.sections[o.target] = fmt.Sprintf("%s\n\n```\n%s\n```\n", o.target, strings.Join(o.lines, "\n"))
	var b strings.Builder
	b.WriteString(pageHead)
	for _, s := range p.steps {
		b.WriteString(p.rows[s.target])
	}
	for _, s := range p.steps {
		if section := p.sections[s.target]; section != "" {
			b.WriteString(sectionHead + section)
		}
	}
	return os.WriteFile(p.file, []byte(b.String()), 0o644)
}
