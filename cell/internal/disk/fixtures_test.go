package disk

import (
	"errors"
	"io"
	"log/slog"
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
	if err != nil {
		t.Fatal(err)
	}
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

// faultyStore is Raft's three stores in memory. It calls before with the name
// of each operation; a returned error is the operation's error.
type faultyStore struct {
	*raft.InmemStore
	raft.SnapshotStore
	before    func(op string) error
	monotonic bool
}

func newFaultyStore() *faultyStore {
	return &faultyStore{InmemStore: raft.NewInmemStore(), SnapshotStore: raft.NewInmemSnapshotStore(), before: func(string) error { return nil }}
}

func (s *faultyStore) IsMonotonic() bool { return s.monotonic }

func (s *faultyStore) FirstIndex() (uint64, error) {
	if err := s.before("FirstIndex"); err != nil {
		return 0, err
	}
	return s.InmemStore.FirstIndex()
}

func (s *faultyStore) LastIndex() (uint64, error) {
	if err := s.before("LastIndex"); err != nil {
		return 0, err
	}
	return s.InmemStore.LastIndex()
}

func (s *faultyStore) GetLog(index uint64, log *raft.Log) error {
	if err := s.before("GetLog"); err != nil {
		return err
	}
	return s.InmemStore.GetLog(index, log)
}

func (s *faultyStore) StoreLogs(logs []*raft.Log) error {
	if err := s.before("StoreLogs"); err != nil {
		return err
	}
	return s.InmemStore.StoreLogs(logs)
}

func (s *faultyStore) DeleteRange(first, last uint64) error {
	if err := s.before("DeleteRange"); err != nil {
		return err
	}
	return s.InmemStore.DeleteRange(first, last)
}

func (s *faultyStore) Set(key, value []byte) error {
	if err := s.before("Set " + string(key)); err != nil {
		return err
	}
	return s.InmemStore.Set(key, value)
}

func (s *faultyStore) Get(key []byte) ([]byte, error) {
	if err := s.before("Get " + string(key)); err != nil {
		return nil, err
	}
	value, _ := s.InmemStore.Get(key) // the only error is that the key is missing
	return value, nil
}

func (s *faultyStore) SetUint64(key []byte, value uint64) error {
	if err := s.before("Set " + string(key)); err != nil {
		return err
	}
	return s.InmemStore.SetUint64(key, value)
}

func (s *faultyStore) GetUint64(key []byte) (uint64, error) {
	if err := s.before("Get " + string(key)); err != nil {
		return 0, err
	}
	value, _ := s.InmemStore.GetUint64(key)
	return value, nil
}

func (s *faultyStore) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	if err := s.before("Create"); err != nil {
		return nil, err
	}
	sink, err := s.SnapshotStore.Create(version, index, term, c, ci, trans)
	return &faultySink{SnapshotSink: sink, before: s.before}, err
}

func (s *faultyStore) List() ([]*raft.SnapshotMeta, error) {
	if err := s.before("List"); err != nil {
		return nil, err
	}
	return s.SnapshotStore.List()
}

func (s *faultyStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if err := s.before("Open"); err != nil {
		return nil, nil, err
	}
	return s.SnapshotStore.Open(id)
}

type faultySink struct {
	raft.SnapshotSink
	before func(string) error
}

func (s *faultySink) Write(p []byte) (int, error) {
	if err := s.before("Write"); err != nil {
		return 0, err
	}
	return s.SnapshotSink.Write(p)
}

func (s *faultySink) Close() error {
	if err := s.before("Close"); err != nil {
		return err
	}
	return s.SnapshotSink.Close()
}

// errSilent represents the call of silence in the tests of failStop.
var errSilent = errors.New("silenced")

// failStopTrio wraps a faultyStore. The channel receives the errors with which
// fatal is called.
func failStopTrio(inner *faultyStore) (*failStopLogs, *failStopVotes, *failStopSnapshots, chan error) {
	told := make(chan error, 10)
	g := newFailStop(maxStoreWait, func() { told <- errSilent }, func(err error) { told <- err })
	return &failStopLogs{inner: inner, failStop: g, path: "/data/log.db"}, &failStopVotes{inner, g, "/data/votes.db"}, &failStopSnapshots{inner: inner, failStop: g, path: "/data/snapshots"}, told
}
