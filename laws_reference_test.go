package chubby_test

import (
	"bytes"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A text that sends its reader somewhere: a comment of the source, or a line of a page.
type passage struct {
	at, dir, text string // dir is that of the file, for links that are relative to it
}

// passages are all comments of the source, and all pages.
func passages(t *testing.T, files []source) []passage {
	t.Helper()
	var list []passage
	for _, f := range files {
		for _, group := range f.ast.Comments {
			list = append(list, passage{at: f.at(group), dir: f.dir, text: group.Text()})
		}
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/*.md", "contrib/*/*.md", "api/chubbypb/*.proto"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			page, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, passage{at: name, dir: path.Dir(name), text: string(page)})
		}
	}
	return list
}

// lawReferences: a comment or a page that sends its reader somewhere names a place that is
// there: a decision in docs/design.md, an ADR, a section of the paper that
// docs/conformance.md goes through, a file of this repository, a heading of a page.
func lawReferences(t *testing.T, files []source) {
	decisions, sections := decisionsOfDesign(t), sectionsOfPaper(t)
	adrs, err := filepath.Glob("docs/adr/*.md")
	if err != nil || len(adrs) < 10 {
		t.Fatalf("%d ADRs: %v", len(adrs), err)
	}
	decision := regexp.MustCompile(`[Dd]ecisions?\s(\d+)(?:\s(?:and|to)\s(\d+))?`)
	section := regexp.MustCompile(`(\w+)?([\s(,/]|//)*§\s?(\d+(?:\.\d+)?)`)
	adr := regexp.MustCompile(`(?:\bADR|\badr) (\d+)`)
	for _, p := range passages(t, files) {
		if p.at == "CHANGELOG.md" {
			continue // it says what was
		}
		for _, match := range decision.FindAllStringSubmatch(p.text, -1) {
			for _, n := range match[1:] {
				if n != "" && !decisions[n] {
					t.Errorf("%s: docs/design.md has no decision %s", p.at, n)
				}
			}
		}
		for _, match := range section.FindAllStringSubmatch(p.text, -1) {
			if !sections[match[3]] && !sections[strings.SplitN(match[3], ".", 2)[0]] {
				t.Errorf("%s: %q: docs/conformance.md, which goes through the paper, has no §%s", p.at, match[0], match[3])
			}
			if slices.Contains([]string{"design", "Design", "see", "page"}, match[1]) {
				t.Errorf("%s: %q is not a section of the paper; name the page, and link to it", p.at, match[0])
			}
		}
		for _, match := range adr.FindAllStringSubmatch(p.text, -1) {
			number := strings.Repeat("0", max(4-len(match[1]), 0)) + match[1]
			if !slices.ContainsFunc(adrs, func(name string) bool { return strings.HasPrefix(path.Base(name), number+"-") }) {
				t.Errorf("%s: there is no ADR %s", p.at, match[1])
			}
		}
		namesFiles(t, p)
		if strings.HasSuffix(p.at, ".md") {
			linksSomewhere(t, p)
		}
	}
}

// decisionsOfDesign are the numbers of the list in docs/design.md.
func decisionsOfDesign(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	decisions := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^(\d+)\. \*\*`).FindAllSubmatch(page, -1) {
		decisions[string(match[1])] = true
	}
	if len(decisions) < 20 {
		t.Fatalf("docs/design.md lists %d decisions: the pattern of this law does not fit it any more", len(decisions))
	}
	return decisions
}

// sectionsOfPaper are the sections of the paper that docs/conformance.md has headings for:
// a range names all of its sections, and a whole section all of its parts.
func sectionsOfPaper(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "## ") {
			continue
		}
		for _, match := range regexp.MustCompile(`§(\d+(?:\.\d+)?)`).FindAllStringSubmatch(line, -1) {
			sections[match[1]] = true
		}
		if strings.Contains(line, "§2.10 to §2.12") {
			sections["2.11"] = true
		}
	}
	if len(sections) < 12 {
		t.Fatalf("docs/conformance.md has headings for %d sections of the paper: the pattern of this law does not fit it any more", len(sections))
	}
	return sections
}

// namesFiles checks the names of Go files: with a directory it is one of this repository,
// and without one of the same directory.
func namesFiles(t *testing.T, p passage) {
	t.Helper()
	for _, name := range regexp.MustCompile(`[\w./*-]*\w\.go\b`).FindAllString(p.text, -1) {
		address := strings.HasPrefix(name, "//")
		if address || strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "./") && !strings.HasPrefix(name, "../") {
			continue
		}
		if slices.Contains(exampleFiles(), name) {
			continue
		}
		found := false
		for _, candidate := range []string{name, path.Join(p.dir, name)} {
			matches, err := filepath.Glob(candidate)
			found = found || err == nil && len(matches) > 0
		}
		found = found || strings.Contains(p.text, "["+name+"](") // the link is checked
		if !found {
			t.Errorf("%s: there is no file %s", p.at, name)
		}
	}
}

// exampleFiles are names of files that readers make, and of other projects.
func exampleFiles() []string { return []string{"main.go", "doc.go", "x.go", "pb.go"} }

// linksSomewhere checks the links of a page: a file, and its heading if one is named.
func linksSomewhere(t *testing.T, p passage) {
	t.Helper()
	for _, match := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(p.text, -1) {
		target, heading, _ := strings.Cut(match[1], "#")
		if strings.Contains(target, "://") || strings.HasPrefix(match[1], "mailto:") {
			continue
		}
		file := path.Join(p.dir, target)
		if target == "" {
			file = p.at
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s: the link %s leads nowhere", p.at, match[1])
			continue
		}
		if heading == "" || !strings.HasSuffix(file, ".md") {
			continue
		}
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(anchors(page), heading) {
			t.Errorf("%s: %s has no heading #%s", p.at, file, heading)
		}
	}
}

// anchors are the names by which links find the headings of a page.
func anchors(page []byte) []string {
	var list []string
	for line := range bytes.Lines(page) {
		if !bytes.HasPrefix(line, []byte("#")) {
			continue
		}
		text := strings.ToLower(strings.TrimSpace(strings.TrimLeft(string(line), "#")))
		var b strings.Builder
		for _, r := range text {
			switch {
			case r == ' ' || r == '-':
				b.WriteRune('-')
			case r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r > 127:
				b.WriteRune(r)
			}
		}
		list = append(list, b.String())
	}
	return list
}

// The glossary is short enough to be read, and what it says is in the code is there.
func TestGlossary(t *testing.T) {
	page, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	for _, f := range sources(t) {
		declared[f.ast.Name.Name] = true
		for _, decl := range f.ast.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				declared[f.ast.Name.Name+"."+decl.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						declared[f.ast.Name.Name+"."+spec.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							declared[f.ast.Name.Name+"."+name.Name] = true
						}
					}
				}
			}
		}
	}
	words := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 3 || strings.Contains(line, "---") || strings.HasPrefix(line, "| word |") {
			continue
		}
		words++
		for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			name := strings.Join(strings.Split(match[1], ".")[:min(2, strings.Count(match[1], ".")+1)], ".")
			if !declared[name] {
				t.Errorf("docs/glossary.md: nothing declares %s", match[1])
			}
		}
	}
	if words < 30 || words > 40 {
		t.Errorf("the glossary has %d words; want 30 to 40", words)
	}
}
