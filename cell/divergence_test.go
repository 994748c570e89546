package cell

import (
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// TestDivergenceIsNoticed: a replica that applied another entry than the others
// is noticed without anybody asking, by both sides.
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

// TestHistoryContinues: the running hash goes on from a snapshot as it would have
// without it.
func TestHistoryContinues(t *testing.T) {
	begin, err := raftfsm.EncodeEntry(raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{{NewEpoch: &raftfsm.NewEpoch{Cell: "local", Level: raftfsm.MaxLevel}}}})
	if err != nil {
		t.Fatal(err)
	}
	whole, restored := raftfsm.NewFSM(raftfsm.MaxLevel, func(err error) { t.Fatal(err) }), raftfsm.NewFSM(raftfsm.MaxLevel, func(err error) { t.Fatal(err) })
	for i, data := range [][]byte{begin, emptyEntry(t, 1), emptyEntry(t, 2)} {
		whole.Apply(&raft.Log{Index: uint64(i + 1), Term: 1, Data: data})
	}
	snapshot, err := whole.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	store := raft.NewInmemSnapshotStore()
	sink, err := store.Create(1, 3, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Persist(sink); err != nil {
		t.Fatal(err)
	}
	_, r, err := store.Open(sink.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := restored.Restore(r); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*raftfsm.FSM{whole, restored} {
		f.Apply(&raft.Log{Index: 4, Term: 1, Data: emptyEntry(t, 9)})
	}
	for _, index := range []uint64{3, 4} {
		a, aok := whole.HistoryAt(index)
		b, bok := restored.HistoryAt(index)
		if a != b || !aok || !bok {
			t.Errorf("after entry %d: %d, %v; and with a snapshot %d, %v", index, a, aok, b, bok)
		}
	}
	if _, ok := restored.HistoryAt(2); ok {
		t.Error("it knows of entries before the snapshot")
	}
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
