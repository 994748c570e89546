package disk

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/hashicorp/raft"
)

// testStores opens replica r1 of cell foo.
func testStores(dir string, kind LogStore) (*Stores, error) {
	return Open(dir, kind, testStoreOptions())
}

// storeOf returns the log store of that name.
func storeOf(t testing.TB, kind LogStore) logStore {
	t.Helper()
	store, ok := logStoreNamed(kind)
	if !ok {
		t.Fatalf("there is no log store %q", kind)
	}
	return store
}

func testStoreOptions() Options {
	return Options{
		Cell: "foo", ID: "r1", Logger: slog.New(slog.DiscardHandler), segmentSize: crashSegment, Bootstrap: true,
		Silence: func() {}, Fatal: func(err error) { panic(err) },
	}
}

// mustOpen opens the stores and closes them with the test.
func mustOpen(t *testing.T, dir string, kind LogStore) *Stores {
	t.Helper()
	s, err := testStores(dir, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, s) })
	return s
}

func mustClose(t *testing.T, s *Stores) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// filled makes a directory with a term, entries 1 to last and, if snapshot is
// not 0, a snapshot at that index, and closes it.
func filled(t *testing.T, dir string, kind LogStore, last, snapshot uint64) {
	t.Helper()
	s := mustOpen(t, dir, kind)
	if err := s.who.Store(rosterAlone(s.who.Get()), true); err != nil {
		t.Fatal(err)
	}
	if err := s.stable.SetUint64([]byte("CurrentTerm"), 1); err != nil {
		t.Fatal(err)
	}
	if err := s.logs.StoreLogs(crashBatch(1, last, 1)); err != nil {
		t.Fatal(err)
	}
	if snapshot != 0 {
		takeSnapshot(t, s, snapshot)
	}
	mustClose(t, s)
}

// rosterAlone returns the roster of a cell of one.
func rosterAlone(who identity.Replica) *identity.Roster {
	return &identity.Roster{CellID: "c", Members: []identity.Member{{ID: who.ID, Raft: "a", Incarnation: who.Incarnation}}}
}

// preparedAlone returns the identity of the only member of a cell that has not
// begun.
func preparedAlone(t *testing.T) *IdentityFile {
	t.Helper()
	f := &IdentityFile{path: filepath.Join(t.TempDir(), rosterName)}
	who := identity.Replica{ID: "r1", Incarnation: "i1"}
	f.current.Store(&who)
	if err := f.Store(rosterAlone(who), false); err != nil {
		t.Fatal(err)
	}
	return f
}

func takeSnapshot(t *testing.T, s *Stores, index uint64) {
	t.Helper()
	takeSnapshotOf(t, s, index, 1)
}

// takeSnapshotOf is takeSnapshot for an entry of that term.
func takeSnapshotOf(t *testing.T, s *Stores, index, term uint64) {
	t.Helper()
	_, wire := raft.NewInmemTransport("a")
	sink, err := s.snapshots.Create(1, index, term, votersOfCell(s), 1, wire)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sink.Write([]byte("state"))
	if err := errors.Join(err, sink.Close()); err != nil {
		t.Fatal(err)
	}
}

func overwrite(name, text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// damageSnapshots flips a bit in the contents of every snapshot.
func damageSnapshots(t *testing.T, dir string) {
	states, err := filepath.Glob(filepath.Join(dir, snapshotsName, "*", "state.bin"))
	if err != nil || len(states) == 0 {
		t.Fatalf("no snapshots to damage: %v", err)
	}
	for _, path := range states {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text[0] ^= 1
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
