package cowmap_test

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/chubbylock/chubby/internal/cowmap"
	"pgregory.net/rapid"
)

// model is a map and what must be in it.
type model struct {
	m    cowmap.Map[int, int]
	want map[int]int
}

func (x model) check(t *rapid.T, what string) {
	if x.m.Len() != len(x.want) || !maps.Equal(maps.Collect(x.m.All()), x.want) {
		t.Fatalf("%s: %v, want %v", what, maps.Collect(x.m.All()), x.want)
	}
	keys := slices.Sorted(maps.Keys(x.want))
	first := rapid.IntRange(-1, keyRange).Draw(t, "first")
	at, there := slices.BinarySearch(keys, first)
	if v, ok := x.m.Get(first); v != x.want[first] || ok != there {
		t.Fatalf("%s: Get(%d) = %d, %v, want %d", what, first, v, ok, x.want[first])
	}
	for k := range x.m.From(first) {
		if at == len(keys) || k != keys[at] {
			t.Fatalf("%s: from %d on %d comes at place %d of %v", what, first, k, at, keys)
		}
		if at++; k%7 == 0 {
			return // a loop may end early
		}
	}
	if at < len(keys) {
		t.Fatalf("%s: from %d on there is nothing after place %d of %v", what, first, at, keys)
	}
}

const keyRange = 300 // several levels of nodes

// A map does the same as a plain one, and no snapshot or copy of it changes.
func TestMapAgainstPlainMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := model{cowmap.New[int, int](cmp.Less[int]), map[int]int{}}
		var before []model
		editing := false
		for i := range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				before = append(before, model{now.m.Snapshot(), maps.Clone(now.want)})
			case 1:
				now.m.Edit()
				editing = true
			case 2:
				now.m.Settle()
				before = append(before, model{now.m, maps.Clone(now.want)})
				editing = false
			case 3:
				k := rapid.IntRange(0, keyRange).Draw(t, "key")
				want, there := now.want[k]
				if v, ok := now.m.Delete(k); v != want || ok != there {
					t.Fatalf("Delete(%d) = %d, %v, want %d, %v", k, v, ok, want, there)
				}
				delete(now.want, k)
			case 4:
				if len(before) > 0 { // go on with an earlier one, which stays
					now.m, now.want = before[0].m, maps.Clone(before[0].want)
					if editing {
						now.m.Edit()
					}
				}
			default:
				for k := range rapid.IntRange(1, 40).Draw(t, "more") {
					k = k * 31 % keyRange
					now.m.Set(k, i)
					now.want[k] = i
				}
			}
			now.check(t, "now")
		}
		for _, x := range before {
			x.check(t, "before")
		}
	})
}

// Many goroutines may read a snapshot, and change copies of it, while the map changes; the race
// detector checks it.
func TestSnapshotsAreReadWhileTheMapChanges(t *testing.T) {
	m := cowmap.New[int, int](cmp.Less[int])
	m.Edit()
	var readers sync.WaitGroup
	for i := range 50 {
		for k := range 100 {
			m.Set(k*7%keyRange, i)
		}
		snapshot := m.Snapshot()
		for range 2 {
			readers.Go(func() {
				own := snapshot
				own.Edit()
				own.Set(-1, -1)
				for k, v := range snapshot.All() {
					if v != i {
						t.Errorf("snapshot %d has %d for %d", i, v, k)
					}
				}
			})
		}
	}
	readers.Wait()
}
