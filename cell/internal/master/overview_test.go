package master

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/chubbylock/chubby/session"
)

// The list keeps what sorting everything would keep.
func TestLongestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := longestList[int]{most: rapid.IntRange(1, 5).Draw(t, "most")}
		ages := rapid.SliceOf(rapid.Uint64Range(0, 6)).Draw(t, "ages")
		type one struct {
			since session.Instant
			what  int
		}
		var all []one
		for i, age := range ages {
			l.add(session.Instant(age), i)
			all = append(all, one{session.Instant(age), i})
		}
		slices.SortStableFunc(all, func(a, b one) int { return int(a.since) - int(b.since) })
		want := all[:min(len(all), l.most)]
		if len(l.list) != len(want) || l.more != len(all)-len(want) {
			t.Fatalf("%d are kept and %d counted of %d", len(l.list), l.more, len(all))
		}
		for i, w := range want {
			if l.list[i].since != w.since || l.list[i].what != w.what {
				t.Fatalf("%v is at %d, want %v", l.list[i], i, w)
			}
		}
	})
}
