package chubby_test

import (
	"os"
	"regexp"
	"testing"
)

// lawReferences: a comment that sends its reader to a page must name one that
// is in this repository. "Decision N" is the list in docs/design.md; a section
// sign is a section of the paper, and says so.
func lawReferences(t *testing.T, files []source) {
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
	number, foreign := regexp.MustCompile(`[Dd]ecisions? (\d+)(?: (?:and|to)\s(\d+))?`), regexp.MustCompile(`[Dd]esign §`)
	for _, f := range files {
		for _, group := range f.ast.Comments {
			text := group.Text()
			for _, match := range number.FindAllStringSubmatch(text, -1) {
				for _, n := range match[1:] {
					if n != "" && !decisions[n] {
						t.Errorf("%s: docs/design.md has no decision %s", f.at(group), n)
					}
				}
			}
			if found := foreign.FindString(text); found != "" {
				t.Errorf("%s: %q refers to a page that is not in this repository", f.at(group), found)
			}
		}
	}
}
