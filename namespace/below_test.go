package namespace_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// From every mark on, Below returns the later nodes that a scan of all nodes
// finds.
func TestBelow(t *testing.T) {
	tree := namespace.New(api.ACL{})
	names := []api.Name{"/a", "/a-", "/a/a", "/a/b", "/a/b/c", "/a-/x", "/ab", "/b", "/b/a", "/b/a/c"}
	for i, name := range names {
		if _, err := tree.Create(name, namespace.Spec{Kind: api.Directory}, api.Generation(i+2)); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range append([]api.Name{"", "/none", "/a/none"}, names...) {
		var want []api.Name
		for n := range tree.All() {
			if n.Name == prefix || strings.HasPrefix(string(n.Name), string(prefix)+"/") {
				want = append(want, n.Name)
			}
		}
		var marks []namespace.Mark
		for behind := namespace.Mark(nil); ; {
			var got []api.Name
			for mark, n := range tree.Below(prefix, behind) {
				if got = append(got, n.Name); len(got) == 1 {
					marks = append(marks, slices.Clone(mark))
					if !slices.Equal(mark, n.Mark()) {
						t.Errorf("the mark of %s is %q, and Mark returns %q", n.Name, mark, n.Mark())
					}
				}
			}
			if rest := want[min(len(want), len(marks)-min(len(got), 1)):]; !slices.Equal(got, rest) {
				t.Errorf("below %q, behind %q: %v, want %v", prefix, behind, got, rest)
			}
			if len(got) == 0 {
				break
			}
			behind = marks[len(marks)-1]
		}
	}
}
