package master

import (
	"testing"

	"pgregory.net/rapid"
)

// The sum is that of the parts, and who has nothing takes no room.
func TestTally(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tally, want := newTally(), map[string]int{}
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			who := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "who")
			n := rapid.IntRange(-want[who], 5).Draw(t, "n")
			tally.add(who, n)
			want[who] += n
		}
		sum := 0
		for who, n := range want {
			if sum += n; tally.of[who] != n {
				t.Fatalf("%q has %d, want %d", who, tally.of[who], n)
			}
			if _, kept := tally.of[who]; kept && n == 0 {
				t.Fatalf("%q has nothing, and is kept", who)
			}
		}
		if tally.all != sum {
			t.Fatalf("in all %d, want %d", tally.all, sum)
		}
	})
}
