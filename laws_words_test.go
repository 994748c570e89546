package chubby_test

import (
	"regexp"
	"strings"
	"testing"
)

// hiddenActors are phrases that hide who acts: "the holder is told of it" instead of "the master sends the holder an event", or a
// sentence with a clause as its subject. A sentence that says who acts is read once.
var hiddenActors = regexp.MustCompile(`(?i:\bwhoever\b|\b(?:is|are) none\b|\btold of\b|\bof which one\b)|(?:^|[.:;] )(?:Who|What) [a-z]`)

// lawWords: comments say who acts. The list has how many such phrases the comments of a package still have. It may only shrink.
func lawWords(t *testing.T, files []source) {
	left := map[string]int{
		"":                              9,
		"api":                           2,
		"api/chubbypb":                  1,
		"cell":                          40,
		"cell/celltest":                 3,
		"cell/internal/master":          11,
		"cell/internal/memnet":          3,
		"cell/internal/steps":           4,
		"cell/recovery":                 4,
		"client":                        46,
		"client/clientprom":             4,
		"client/recipe":                 31,
		"client/recipe/resolver":        5,
		"cmd/chubbyctl":                 34,
		"cmd/chubbyctl/internal/sizing": 6,
		"cmd/chubbyctl/internal/term":   3,
		"e2e":                           6,
		"internal/helptext":             2,
		"internal/ports":                1,
		"misuse":                        5,
		"namespace":                     6,
		"raftfsm":                       3,
		"sequencer":                     7,
		"sequencer/seqgrpc":             2,
		"sequencer/seqhttp":             3,
		"session":                       4,
	}
	found := map[string]int{}
	for _, f := range files {
		if !f.ours {
			continue
		}
		for _, group := range f.ast.Comments {
			words := strings.ReplaceAll(group.Text(), "\n", " ")
			for _, phrase := range hiddenActors.FindAllString(words, -1) {
				if found[f.dir]++; found[f.dir] > left[f.dir] {
					t.Errorf("%s: %q: say who acts, in a main clause; at most %d comments of %q may be so", f.at(group), phrase, left[f.dir], f.dir)
				}
			}
		}
	}
	for dir, most := range left {
		if found[dir] < most {
			t.Logf("the comments of %q have %d such phrases: lower its number, %d", dir, found[dir], most)
		}
	}
}
