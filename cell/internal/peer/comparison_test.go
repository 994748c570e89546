package peer

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/testbed"
)

// TestComparisonSaysWhoDiffers: another replica can differ only at an index
// that this replica has applied. The log says so at once and then every minute,
// and the replica is counted until the two agree again.
func TestComparisonSaysWhoDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testbed.Lines{}
		c := NewComparison(func(index uint64) (uint64, bool) { return 100 + index, index <= 7 }, testbed.Clock(), slog.New(slog.NewTextHandler(log, nil)))
		c.Compare("r2", Report{Applied: 8}) // it is ahead
		c.Compare("r2", Report{Applied: 7, History: 107})
		if lines := log.Take(); len(lines) != 0 || len(c.Differing()) != 0 {
			t.Errorf("replicas that agree: %q, %d", lines, len(c.Differing()))
		}
		for range 30 {
			c.Compare("r3", Report{Applied: 7, History: 999})
			testbed.Pass(5 * time.Second)
		}
		lines := log.Take()
		if len(lines) != 3 || len(c.Differing()) != 1 || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[0], "peer=r3") {
			t.Errorf("a replica that differs for 150 s: %q, %d", lines, len(c.Differing()))
		}
		if !strings.Contains(strings.Join(lines, ""), "Remove no data directory") {
			t.Errorf("the advice is missing: %q", lines)
		}
		c.Compare("r3", Report{Applied: 7, History: 107})
		if len(c.Differing()) != 0 {
			t.Error("it is counted after it agreed")
		}
	})
}

// quietComparison is a comparison of a replica that has applied nothing.
func quietComparison() *Comparison {
	return NewComparison(func(uint64) (uint64, bool) { return 0, false }, testbed.Clock(), slog.New(slog.DiscardHandler))
}

// A check arrives as it was sent, and its parts do not touch each other.
func TestChecksOnTheWire(t *testing.T) {
	most := Check{Index: 1<<48 - 1, Kind: 1<<32 - 1, Sum: 1<<48 - 1}
	for _, c := range []Check{{}, most, {Index: most.Index}, {Kind: most.Kind}, {Sum: most.Sum}, {Sum: 1}, {Sum: 1 << 47}, NewCheck(1<<40+7, 9, "v1 3", []byte("hash"))} {
		var frame [16]byte
		c.put(frame[:])
		if got := checkIn(frame[:]); got != c {
			t.Errorf("%+v arrives as %+v", c, got)
		}
	}
	a := NewCheck(7, 1, "v1 3", []byte("a"))
	for _, other := range []Check{NewCheck(8, 1, "v1 3", []byte("b")), NewCheck(7, 2, "v1 3", []byte("b")), NewCheck(7, 1, "v2 3", []byte("b")), NewCheck(7, 1, "v1 3", []byte("a")), {}} {
		if a.Differs(other) || other.Differs(a) {
			t.Errorf("%+v and %+v cannot be compared, or agree", a, other)
		}
	}
	if !a.Differs(NewCheck(7, 1, "v1 3", []byte("b"))) {
		t.Error("a difference is not noticed")
	}
}

// Only a majority of all voters contradicts, whose members agree with each other; and never so many replicas at once that no majority is left.
func TestContradicted(t *testing.T) {
	for _, c := range []struct{ states, contradicted string }{ // of each voter a letter; _ is silent
		{"aab", "--b"}, {"ab", "--"}, {"abc", "---"}, {"a_b", "---"}, {"aabb", "----"}, {"aaab", "---b"}, {"aab_", "----"},
		{"aaabb", "---bb"}, {"aaabc", "---bc"}, {"aabbc", "-----"}, {"aaaab", "----b"}, {"aa__b", "-----"}, {"aaaaa", "-----"}, {"aaa_b", "----b"},
	} {
		var voters []string
		checks := map[string]Check{}
		for i, state := range c.states {
			id := fmt.Sprint("r", i)
			voters = append(voters, id)
			if state != '_' {
				checks[id] = Check{Index: 7, Kind: 1, Sum: uint64(state)}
			}
		}
		got := ""
		for _, id := range voters {
			others := map[string]Check{"stranger": {Index: 7, Kind: 1, Sum: 'a'}, "stranger2": {Index: 7, Kind: 1, Sum: 'a'}}
			for other, check := range checks {
				if other != id {
					others[other] = check
				}
			}
			if by, sum := Contradicted(checks[id], others, voters); by == nil {
				got += "-"
			} else {
				got += string(rune(checks[id].Sum))
				if slices.Contains(by, id) || sum != 'a' || len(by) != strings.Count(c.states, "a") {
					t.Errorf("%s: %s is contradicted by %v, who have %c", c.states, id, by, rune(sum))
				}
			}
		}
		if got != c.contradicted {
			t.Errorf("%s: contradicted are %s, want %s", c.states, got, c.contradicted)
		}
	}
}

// A replica that has another state at a check point is counted, whichever of the two reaches it first, until it agrees at a later one.
func TestComparisonOfStates(t *testing.T) {
	c := quietComparison()
	at := func(index uint64, state string) Check { return NewCheck(index, 1, "v1", []byte(state)) }
	differ := func(when, want string) {
		t.Helper()
		if got := strings.Join(c.Differing(), " "); got != want {
			t.Errorf("%s: %q differ, want %q", when, got, want)
		}
	}
	c.Compare("r2", Report{Check: at(5, "a")})
	c.Compare("r3", Report{Check: at(5, "b")})
	differ("before this replica has reached it", "")
	c.Reached(at(5, "a"))
	differ("afterwards", "r3")
	c.Compare("r3", Report{})
	differ("it is leaving", "r3")
	c.Reached(at(9, "a"))
	c.Compare("r2", Report{Check: at(9, "b")})
	differ("the next one", "r2 r3")
	c.Compare("r3", Report{Check: at(9, "a")})
	differ("it agrees again", "r2")
	c.Keep([]string{"r1", "r3"})
	differ("it was replaced", "")
}
