package disk

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

// testStores opens replica r1 of cell foo.
func testStores(dir string, kind LogStore) (*Stores, error) {
	return Open(dir, kind, testStoreOptions())
}

// onEachStore runs a test on each log store, with a directory that is not there yet.
func onEachStore(t *testing.T, test func(t *testing.T, kind LogStore, dir string)) {
	t.Helper()
	for _, kind := range LogStores() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, kind, filepath.Join(t.TempDir(), "data"))
		})
	}
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
	s := testbed.Must(testStores(dir, kind))(t)
	t.Cleanup(func() { mustClose(t, s) })
	return s
}

func mustClose(t *testing.T, s *Stores) {
	t.Helper()
	testbed.Report(t, s.Close())
}

// filled makes a directory with a term, entries 1 to last and, if snapshot is
// not 0, a snapshot at that index, and closes it.
func filled(t *testing.T, dir string, kind LogStore, last, snapshot uint64) {
	t.Helper()
	s := mustOpen(t, dir, kind)
	testbed.NoErr(t, s.who.Store(rosterAlone(s.who.Get()), true))
	testbed.NoErr(t, s.stable.SetUint64([]byte("CurrentTerm"), 1))
	testbed.NoErr(t, s.logs.StoreLogs(crashBatch(1, last, 1)))
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
	testbed.NoErr(t, f.Store(rosterAlone(who), false))
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
	testbed.NoErr(t, err)
	_, err = sink.Write([]byte("state"))
	testbed.NoErr(t, errors.Join(err, sink.Close()))
}

func overwrite(name, text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		testbed.NoErr(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

// damageSnapshots flips a bit in the contents of every snapshot.
func damageSnapshots(t *testing.T, dir string) {
	states, err := filepath.Glob(filepath.Join(dir, snapshotsName, "*", "state.bin"))
	if err != nil || len(states) == 0 {
		t.Fatalf("no snapshots to damage: %v", err)
	}
	for _, path := range states {
		text := testbed.Must(os.ReadFile(path))(t)
		text[0] ^= 1
		testbed.NoErr(t, os.WriteFile(path, text, 0o600))
	}
}

// hooked is Raft's three stores. Each operation, with its name, passes around.
type hooked struct {
	raft.LogStore
	raft.StableStore
	raft.SnapshotStore
	around func(op string, do func() error) error
}

func (s *hooked) FirstIndex() (index uint64, err error) {
	err = s.around("FirstIndex", func() error { index, err = s.LogStore.FirstIndex(); return err })
	return index, err
}

func (s *hooked) LastIndex() (index uint64, err error) {
	err = s.around("LastIndex", func() error { index, err = s.LogStore.LastIndex(); return err })
	return index, err
}

func (s *hooked) GetLog(index uint64, log *raft.Log) error {
	return s.around("GetLog", func() error { return s.LogStore.GetLog(index, log) })
}

func (s *hooked) StoreLogs(logs []*raft.Log) error {
	return s.around("StoreLogs", func() error { return s.LogStore.StoreLogs(logs) })
}

func (s *hooked) DeleteRange(first, last uint64) error {
	return s.around("DeleteRange", func() error { return s.LogStore.DeleteRange(first, last) })
}

func (s *hooked) Set(key, value []byte) error {
	return s.around("Set "+string(key), func() error { return s.StableStore.Set(key, value) })
}

func (s *hooked) Get(key []byte) (value []byte, err error) {
	err = s.around("Get "+string(key), func() error { value, err = s.StableStore.Get(key); return err })
	return value, err
}

func (s *hooked) SetUint64(key []byte, value uint64) error {
	return s.around("Set "+string(key), func() error { return s.StableStore.SetUint64(key, value) })
}

func (s *hooked) GetUint64(key []byte) (value uint64, err error) {
	err = s.around("Get "+string(key), func() error { value, err = s.StableStore.GetUint64(key); return err })
	return value, err
}

func (s *hooked) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, trans raft.Transport,
) (sink raft.SnapshotSink, err error) {
	err = s.around("Create", func() error { sink, err = s.SnapshotStore.Create(version, index, term, c, ci, trans); return err })
	return hookedSink{sink, s.around}, err
}

func (s *hooked) List() (list []*raft.SnapshotMeta, err error) {
	err = s.around("List", func() error { list, err = s.SnapshotStore.List(); return err })
	return list, err
}

func (s *hooked) Open(id string) (meta *raft.SnapshotMeta, r io.ReadCloser, err error) {
	err = s.around("Open", func() error { meta, r, err = s.SnapshotStore.Open(id); return err })
	return meta, r, err
}

type hookedSink struct {
	raft.SnapshotSink
	around func(op string, do func() error) error
}

func (s hookedSink) Write(p []byte) (n int, err error) {
	err = s.around("Write", func() error { n, err = s.SnapshotSink.Write(p); return err })
	return n, err
}

func (s hookedSink) Close() error { return s.around("Close", s.SnapshotSink.Close) }

// faultyStore is Raft's three stores in memory. It calls before with the name
// of each operation; a returned error is the operation's error.
type faultyStore struct {
	hooked
	memory *raft.InmemStore
	before func(op string) error
}

func newFaultyStore() *faultyStore {
	s := &faultyStore{memory: raft.NewInmemStore(), before: func(string) error { return nil }}
	s.hooked = hooked{s.memory, s.memory, raft.NewInmemSnapshotStore(), func(op string, do func() error) error {
		err := s.before(op)
		if err == nil {
			err = do()
		}
		if err != nil && err.Error() == "not found" { // the memory's error for a missing key
			return nil
		}
		return err
	}}
	return s
}

// errSilent represents the call of silence in the tests of failStop.
var errSilent = errors.New("silenced")

// unguarded is the mark of a log from which everything may be deleted.
func unguarded() *commitMark {
	all := covered{index: math.MaxUint64 - 1}
	return &commitMark{before: all, latest: all}
}

// failStopTrio wraps a faultyStore. The channel receives the errors with which
// fatal is called.
func failStopTrio(inner *faultyStore) (*failStopLogs, *failStopVotes, *failStopSnapshots, chan error) {
	told := make(chan error, 10)
	g := newFailStop(maxStoreWait, func() { told <- errSilent }, func(err error) { told <- err })
	return &failStopLogs{inner: inner, failStop: g, path: "/data/log.db", mark: unguarded()}, &failStopVotes{inner, g, "/data/votes.db", func() {}},
		&failStopSnapshots{inner: inner, failStop: g, path: "/data/snapshots", mark: unguarded()}, told
}
