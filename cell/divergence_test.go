package cell

import (
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// TestDivergenceIsNoticed: without any request, both sides notice that a
// replica applied another entry than the others.
func TestDivergenceIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startCell(t, 3)
		testbed.Pass(2 * compareEvery)
		for id, r := range replicas {
			if n := r.comparison.Differing(); n != 0 {
				t.Errorf("%s differs from %d replicas", id, n)
			}
		}
		at := replicas["r1"].fsm.State().Applied
		for id, r := range replicas {
			for other := range replicas {
				if held := r.passport.HeldBy(other); other != id && held < at {
					t.Errorf("%s remembers that %s held %d, want %d", id, other, held, at)
				}
			}
		}
		for id, r := range replicas {
			wall := int64(0)
			if id == "r2" {
				wall = 1 // of another second
			}
			data := emptyEntry(t, wall)
			if err, failed := r.fsm.Apply(&raft.Log{Index: at + 1, Term: 9, Type: raft.LogCommand, Data: data}).(error); failed {
				t.Fatal(err)
			}
		}
		testbed.Pass(2 * compareEvery)
		for id, want := range map[string]int{"r1": 1, "r2": 2, "r3": 1} {
			if n := replicas[id].comparison.Differing(); n != want {
				t.Errorf("%s sees %d replicas that differ, want %d", id, n, want)
			}
		}
	})
}

// emptyEntry is an entry without commands, of no epoch and of that second.
func emptyEntry(t *testing.T, wall int64) []byte {
	t.Helper()
	data, err := raftfsm.JoinEntry(0, wall, nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
