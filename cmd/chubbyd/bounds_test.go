package main

import (
	"math"
	"strings"
	"testing"
)

// What a cell may hold leaves a replica room for it twice, and for itself; where nothing says how much memory there is, there is no bound.
func TestContentsBound(t *testing.T) {
	for memory, want := range map[int64]int{math.MaxInt64: 0, 1 << 30: 409, 921 << 20: 368, 16 << 30: 6553, 1 << 20: 1} {
		if got := contentsBound(memory); got != want {
			t.Errorf("of %d bytes of memory a cell may hold %d MiB, want %d", memory, got, want)
		}
	}
}

// A bound that does not fit the memory is warned of, and one that does is not.
func TestContentsWarning(t *testing.T) {
	for _, c := range []struct {
		mib    int
		memory int64
		warns  bool
	}{{0, 1 << 30, false}, {409, 1 << 30, false}, {410, 1 << 30, true}, {1 << 20, math.MaxInt64, false}} {
		s := defaults()
		s.replica.MaxContentsMiB = c.mib
		warned := contentsWarning(s, c.memory)
		if (len(warned) > 0) != c.warns || c.warns && !strings.HasPrefix(warned[0], "max-contents-mib: 410 ") {
			t.Errorf("%d MiB of %d bytes: %q", c.mib, c.memory, warned)
		}
	}
}
