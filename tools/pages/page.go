package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// block is a block of code in a page.
type block struct {
	page    string // without ".md"
	heading string // of the section that has it
	n       int    // its place among the blocks of that section, from 1
	line    int    // where it begins in the page
	lang    string // "" for an indented block
	text    string
	before  string // the last line of text in front of it, in which the name of a file is looked for
}

func (b block) key() key       { return key{b.page, b.heading, b.n} }
func (b block) String() string { return fmt.Sprintf("docs/%s.md:%d", b.page, b.line) }

// key finds a block by its place, so that one whose text has changed is still found, and tried.
type key struct {
	page, heading string
	n             int
}

func (k key) String() string { return fmt.Sprintf("docs/%s.md, %q, block %d", k.page, k.heading, k.n) }

// fileName returns the file whose contents a block of YAML or INI is: the text in front of it names one.
func (b block) fileName() string {
	found := regexp.MustCompile("`([^` ]+\\.(?:yaml|service))`").FindStringSubmatch(b.before)
	if found == nil {
		return ""
	}
	return found[1]
}

// readPage returns the blocks of a page, fenced or indented, in their order.
func readPage(docs, page string) ([]block, error) {
	data, err := os.ReadFile(filepath.Join(docs, page+".md"))
	if err != nil {
		return nil, err
	}
	return parsePage(page, string(data))
}

// A line of a list may begin a block that is indented with it.
var (
	fence    = regexp.MustCompile("^( *)```([a-z]*)$")
	indented = regexp.MustCompile(`^    +\S`)
)

func parsePage(page, text string) ([]block, error) {
	var blocks []block
	var open *block
	indent, heading, count, previous, before := "", "", 0, "", ""
	for i, line := range strings.Split(text, "\n") {
		mark := fence.FindStringSubmatch(line)
		switch {
		case open != nil && open.lang != "" && mark != nil:
			blocks, open = append(blocks, *open), nil
		case open != nil && open.lang != "":
			open.text += strings.TrimPrefix(line, indent) + "\n"
		case mark != nil:
			if mark[2] == "" {
				return nil, fmt.Errorf("docs/%s.md:%d: a block needs its language: ```sh, ```yaml, ```ini or ```text", page, i+1)
			}
			count++
			indent = mark[1]
			open = &block{page: page, heading: heading, n: count, line: i + 1, lang: mark[2], before: before}
		case indented.MatchString(line) && strings.TrimSpace(previous) == "":
			return nil, fmt.Errorf("docs/%s.md:%d: an indented block: fence it, so that it is tried", page, i+1)
		case strings.HasPrefix(line, "#"):
			heading, count, before = strings.TrimLeft(line, "# "), 0, ""
		case strings.TrimSpace(line) != "":
			before = line
		}
		previous = line
	}
	if open != nil {
		return nil, fmt.Errorf("docs/%s.md:%d: the block has no end", page, open.line)
	}
	return blocks, nil
}
