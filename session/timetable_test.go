package session_test

import (
	"testing"

	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
)

func TestTimetableAgreesWithItsNaiveTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table session.Timetable[int]
		twin := map[int]session.Instant{}
		key := rapid.IntRange(0, 9)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				k, at := key.Draw(t, "key"), session.Instant(rapid.IntRange(-3, 9).Draw(t, "at"))
				table.Put(k, at)
				twin[k] = at
			},
			"drop": func(t *rapid.T) {
				k := key.Draw(t, "key")
				table.Drop(k)
				delete(twin, k)
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "clear") == 0 {
					table.Clear()
					clear(twin)
				}
			},
			"": func(t *rapid.T) {
				next, at, ok := table.Next()
				if ok != (len(twin) > 0) || table.Len() != len(twin) || ok && twin[next] != at {
					t.Fatalf("Next gives %d at %v, %v, of %v", next, at, ok, twin)
				}
				for k := range 10 {
					want, known := twin[k]
					if got, ok := table.At(k); got != want || ok != known {
						t.Fatalf("%d is due at %v, %v; want %v, %v", k, got, ok, want, known)
					}
					if known && want < at {
						t.Fatalf("%d is due at %v, before the first at %v", k, want, at)
					}
				}
			},
		})
	})
}
