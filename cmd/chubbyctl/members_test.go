package main

import (
	"fmt"
	"testing"

	"github.com/chubbylock/chubby/client/recipe"
)

// Whoever keeps a set of names by the lines of --watch has the members, and never two of one name.
func TestMemberChanges(t *testing.T) {
	a, b, c := recipe.Member{Name: "a", Session: 1}, recipe.Member{Name: "b", Session: 2}, recipe.Member{Name: "c", Session: 3}
	busy, again := b, b
	busy.Value = []byte("busy")
	again.Session = 7
	for _, one := range []struct {
		before, now []recipe.Member
		want        string
	}{
		{nil, []recipe.Member{a, b}, "[joined a1 joined b2]"},
		{[]recipe.Member{a, b}, []recipe.Member{a, b}, "[]"},
		{[]recipe.Member{a, b}, []recipe.Member{a, busy}, "[changed b2]"},
		{[]recipe.Member{a, b}, []recipe.Member{b, c}, "[left a1 joined c3]"},
		{[]recipe.Member{a, b}, []recipe.Member{a, again}, "[left b2 joined b7]"},
		{[]recipe.Member{a, b}, nil, "[left a1 left b2]"},
	} {
		var got []string
		for _, change := range memberChanges(one.before, one.now) {
			got = append(got, fmt.Sprintf("%s %s%d", change.kind, change.member.Name, change.member.Session))
		}
		if fmt.Sprint(got) != one.want {
			t.Errorf("from %v to %v: %v, want %s", one.before, one.now, got, one.want)
		}
	}
}
