package main

import (
	"fmt"
	"go/token"
	"regexp"
	"strings"
)

// fileMarks are the marks of a file, by the line that they speak of.
type fileMarks struct {
	same         map[int]*sameMark
	replacements map[int][]*replacement
}

// sameMark accepts that mutants of a line, or of a function, survive.
type sameMark struct {
	line  int
	whole bool // it is of a whole function
}

// replacement is a mutant that no rule makes: another text in the place of a line.
type replacement struct {
	line int // of the mark
	text string
	test string // the only test that notices it, or ""
	pkg  string // of that test
	used bool   // the line is in a function
}

var (
	sameForm        = regexp.MustCompile(`^//mutants: same \((.+)\)$`)
	replacementForm = regexp.MustCompile(`^//mutant: (.+?)(?: //by (\w+) of (\./\S+))?$`)
)

// readMarks reads the marks of a file. Marks may stand above each other: they all speak of the line
// below the last.
func readMarks(set *token.FileSet, f *sourceFile) (fileMarks, error) {
	marks := fileMarks{same: map[int]*sameMark{}, replacements: map[int][]*replacement{}}
	lines := strings.Split(string(f.text), "\n")
	isMark := func(line int) bool {
		return line <= len(lines) && strings.HasPrefix(strings.TrimSpace(lines[line-1]), "//mutant")
	}
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			if !strings.HasPrefix(c.Text, "//mutant") {
				continue
			}
			line := set.Position(c.Pos()).Line
			target := line
			for isMark(target) {
				target++
			}
			same, replaced := sameForm.FindStringSubmatch(c.Text), replacementForm.FindStringSubmatch(c.Text)
			switch {
			case same != nil:
				marks.same[target] = &sameMark{line: line}
			case replaced != nil && target > line:
				marks.replacements[target] = append(marks.replacements[target], &replacement{line: line, text: replaced[1], test: replaced[2], pkg: replaced[3]})
			default:
				return marks, fmt.Errorf("%s:%d: %q is no mark; write //mutants: same (REASON), or //mutant: REPLACEMENT above a line", f.name, line, c.Text)
			}
		}
	}
	return marks, nil
}
