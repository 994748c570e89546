package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
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

// rosterAlone is the roster of a cell of one.
func rosterAlone(who identity.Replica) *identity.Roster {
	return &identity.Roster{CellID: "c", Members: []identity.Member{{ID: who.ID, Raft: "a", Incarnation: who.Incarnation}}}
}

// preparedAlone is the identity of the only member of a cell, which has not begun.
func preparedAlone(t *testing.T) *IdentityFile {
	t.Helper()
	f := &IdentityFile{path: filepath.Join(t.TempDir(), rosterName)}
	who := identity.Replica{ID: "r1", Incarnation: "i1"}
	f.now.Store(&who)
	if err := f.Store(rosterAlone(who), false); err != nil {
		t.Fatal(err)
	}
	return f
}

func takeSnapshot(t *testing.T, s *Stores, index uint64) {
	t.Helper()
	takeSnapshotOf(t, s, index, 1)
}

// takeSnapshotOf is takeSnapshot, of an entry of that term.
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

// TestDataDirIsOneReplicas: a directory serves the replica it was made for,
// one process at a time, and nobody else on the machine.
func TestDataDirIsOneReplicas(t *testing.T) {
	for _, kind := range []LogStore{BoltStore, WALStore} {
		t.Run(string(kind), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "of", "replica")
			if err := os.MkdirAll(filepath.Join(dir, "lost+found"), 0o755); err != nil { // a disk of its own
				t.Fatal(err)
			}
			s := mustOpen(t, dir, kind)
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("mode %v, %v; want 0700", info.Mode(), err)
			}
			if used, err := s.holdsCell(); used || err != nil {
				t.Errorf("a new directory holds a cell: %v, %v", used, err)
			}
			_, err := testStores(dir, kind)
			if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
				t.Errorf("opened twice: %v; want the directory and the process in it", err)
			}
			mustClose(t, s)
			filled(t, dir, kind, 3, 0)

			other := BoltStore
			if kind == BoltStore {
				other = WALStore
			}
			for name, c := range map[string]struct {
				change func(*Options)
				kind   LogStore
				want   string
			}{
				"another cell":      {func(o *Options) { o.Cell = "bar" }, kind, `belongs to cell "foo"`},
				"another ID":        {func(o *Options) { o.ID = "r2" }, kind, `belongs to replica "r1"`},
				"another log store": {func(*Options) {}, other, fmt.Sprintf("kept in %q", kind)},
			} {
				opts := testStoreOptions()
				c.change(&opts)
				if _, err := Open(dir, c.kind, opts); !errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want a refusal with %q in it", name, err, c.want)
				}
			}
			if _, err := Open(dir, "paper", testStoreOptions()); err == nil || !strings.Contains(err.Error(), `log store "paper"`) {
				t.Errorf("no log store: %v", err)
			}
			s = mustOpen(t, dir, kind)
			if used, err := s.holdsCell(); !used || err != nil {
				t.Errorf("it holds a cell: %v, %v", used, err)
			}
			if last, err := s.logs.LastIndex(); last != 3 || err != nil {
				t.Errorf("the last entry is %d, %v", last, err)
			}
		})
	}
}

// TestDataDirRefusesLoss: whatever of a replica's directory is missing or
// damaged, the replica does not start as if it were new.
func TestDataDirRefusesLoss(t *testing.T) {
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		kind   LogStore
		damage func(*testing.T, string)
		want   string
	}{
		"votes":             {BoltStore, remove(votesName), "is missing"},
		"log":               {BoltStore, remove(boltLogName), "is missing"},
		"snapshots":         {BoltStore, remove(snapshotsName), "is missing"},
		"WAL":               {WALStore, remove(walLogName), "is missing"},
		"WAL's metadata":    {WALStore, remove(filepath.Join(walLogName, walMetaName)), "is missing"},
		"marker":            {BoltStore, remove(markerName), "but not " + markerName},
		"marker's text":     {BoltStore, overwrite(markerName, "{"), "is damaged"},
		"marker's format":   {BoltStore, overwrite(markerName, `{"format":3}`), "format 3"},
		"an old format":     {BoltStore, overwrite(markerName, `{"format":1}`), "early version"},
		"roster":            {BoltStore, remove(rosterName), rosterName + ": it is missing"},
		"roster's text":     {BoltStore, overwrite(rosterName, "{"), "is damaged"},
		"roster's contents": {BoltStore, rosterRots, "its checksum is"},
		"another's roster": {BoltStore, overwrite(rosterName, `{"cell_id":"c","members":[{"id":"r1","raft":"a","incarnation":"other"}],"begun":true}`),
			"files are not of one replica"},
		"votes' text":                   {BoltStore, overwrite(votesName, "not bbolt"), "votes cannot be opened"},
		"log's text":                    {BoltStore, overwrite(boltLogName, strings.Repeat("not bbolt", 10000)), "log cannot be opened"},
		"votes that are empty":          {WALStore, overwrite(votesName, ""), "the votes are damaged"},
		"WAL's metadata that are empty": {WALStore, overwrite(filepath.Join(walLogName, walMetaName), ""), "a file in it is damaged"},
		"WAL's metadata's text":         {WALStore, overwrite(filepath.Join(walLogName, walMetaName), strings.Repeat("not bbolt", 10000)), "log cannot be recovered"},
		"only snapshot":                 {BoltStore, damageSnapshots, "none of 1 snapshots"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir, c.kind, 9, 7)
			c.damage(t, dir)
			if _, err := testStores(dir, c.kind); !errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want a refusal with %q in it", err, c.want)
			}
		})
	}
	t.Run("somebody else's directory", func(t *testing.T) {
		dir := t.TempDir()
		overwrite("thesis.tex", "x")(t, dir)
		if _, err := testStores(dir, BoltStore); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
			t.Errorf("%v, want a refusal that names what is there", err)
		}
	})
}

// TestOldVotesAreRefused: the votes alone are put back from an older copy, as the
// message about missing ones may suggest. The replica could give them again.
func TestOldVotesAreRefused(t *testing.T) {
	for name, snapshot := range map[string]uint64{"log": 0, "snapshot": 10, "snapshot beyond the log": 20} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir, BoltStore, 9, 0)
			old, err := os.ReadFile(filepath.Join(dir, votesName))
			if err != nil {
				t.Fatal(err)
			}
			s := mustOpen(t, dir, BoltStore)
			if err := s.stable.SetUint64([]byte(currentTermKey), 2); err != nil {
				t.Fatal(err)
			}
			if err := s.logs.StoreLogs(crashBatch(10, 10, 2)); err != nil {
				t.Fatal(err)
			}
			if snapshot > 0 {
				takeSnapshotOf(t, s, snapshot, 2)
			}
			mustClose(t, s)
			s, err = testStores(dir, BoltStore)
			if err != nil {
				t.Fatal(err)
			}
			mustClose(t, s)
			overwrite(votesName, string(old))(t, dir)
			if _, err := testStores(dir, BoltStore); api.CodeOf(err) != api.Corrupt || !strings.Contains(err.Error(), "the votes end in term 1") {
				t.Errorf("%v, want a refusal", err)
			}
		})
	}
}

// TestVotesOfAnotherAreRefused: the files of another replica of the cell, put into
// this one's directory beside its marker, do not make it vote as that one.
func TestVotesOfAnotherAreRefused(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	filled(t, dir, BoltStore, 9, 0)
	filled(t, other, BoltStore, 9, 0)
	for _, name := range []string{votesName, boltLogName} {
		text, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		overwrite(name, string(text))(t, dir)
	}
	if _, err := testStores(dir, BoltStore); !errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), "not of one replica") {
		t.Errorf("%v, want a refusal", err)
	}
	// Those of a version that did not say whose they are are this replica's from now on.
	db, err := bbolt.Open(filepath.Join(dir, votesName), 0o600, boltOptions())
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(votesBucket)).Delete([]byte(voterKey)) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir, BoltStore)
	if voter, err := s.rawVotes.Get([]byte(voterKey)); err != nil || string(voter) != s.who.Get().Incarnation {
		t.Errorf("the votes are of %q: %v", voter, err)
	}
}

func overwrite(name, text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// damageSnapshots flips a bit in every snapshot's contents.
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

// TestStartVerifiesLog: Raft panics over an entry that it cannot read while it
// starts, and over a gap between snapshot and log. The stores find out first.
func TestStartVerifiesLog(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*testing.T, *Stores)
		want   string // empty: it opens
	}{
		"nothing": {damage: func(*testing.T, *Stores) {}},
		"compacted up to the snapshot": {damage: func(t *testing.T, s *Stores) {
			takeSnapshot(t, s, 5)
			if err := s.rawLogs.DeleteRange(1, 5); err != nil {
				t.Fatal(err)
			}
		}},
		"compacted without a snapshot": {damage: func(t *testing.T, s *Stores) {
			if err := s.rawLogs.DeleteRange(1, 2); err != nil {
				t.Fatal(err)
			}
		}, want: "log entry 1 of 9"},
		"a gap": {damage: func(t *testing.T, s *Stores) {
			if err := s.logs.DeleteRange(4, 5); err != nil {
				t.Fatal(err)
			}
		}, want: "log entry 4 of 9"},
		"a flipped bit": {damage: func(t *testing.T, s *Stores) {
			var log raft.Log
			if err := s.rawLogs.GetLog(8, &log); err != nil {
				t.Fatal(err)
			}
			log.Data[3] ^= 4
			if err := s.rawLogs.StoreLog(&log); err != nil {
				t.Fatal(err)
			}
		}, want: "log entry 8 fails its checksum"},
		"a flipped bit below the snapshot": {damage: func(t *testing.T, s *Stores) {
			takeSnapshot(t, s, 8)
			if err := s.rawLogs.StoreLog(&raft.Log{Index: 3}); err != nil {
				t.Fatal(err)
			}
		}},
		"terms that fall": {damage: func(t *testing.T, s *Stores) {
			if err := s.logs.StoreLog(crashEntry(10, 0)); err != nil {
				t.Fatal(err)
			}
		}, want: "log entry 10 is of term 0"},
		"the newest snapshot rots, the log reaches back": {damage: func(t *testing.T, s *Stores) {
			takeSnapshot(t, s, 4)
			damageSnapshots(t, s.dir)
			takeSnapshot(t, s, 3) // older, and whole
		}},
		"the newest snapshot rots, the log does not reach back": {damage: func(t *testing.T, s *Stores) {
			takeSnapshot(t, s, 6)
			damageSnapshots(t, s.dir)
			takeSnapshot(t, s, 3)
			if err := s.rawLogs.DeleteRange(1, 5); err != nil {
				t.Fatal(err)
			}
		}, want: "log entry 4 of 9"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir, BoltStore, 9, 0)
			s := mustOpen(t, dir, BoltStore)
			c.damage(t, s)
			mustClose(t, s)
			s, err := testStores(dir, BoltStore)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				mustClose(t, s)
				return
			}
			if api.CodeOf(err) != api.Corrupt || !errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), identity.LossAdvice) {
				t.Errorf("%v, want a refusal, Corrupt with %q and what to do", err, c.want)
			}
		})
	}
}

// TestInterruptedStart: the remains of a first start or of a snapshot that was
// cut short do no harm.
func TestInterruptedStart(t *testing.T) {
	for _, kind := range []LogStore{BoltStore, WALStore} {
		dir := filepath.Join(t.TempDir(), "not", "there")
		s := mustOpen(t, dir, kind)
		mustClose(t, s)
		for _, name := range []string{markerName, votesName} { // as if it had not come so far
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		overwrite(votesName+newSuffix, "half a bbolt file")(t, dir)
		unfinished := filepath.Join(dir, snapshotsName, "1-2-3"+tmpSuffix)
		if err := os.Mkdir(unfinished, 0o700); err != nil {
			t.Fatal(err)
		}
		overwrite("state.bin", "half a snapshot")(t, unfinished)
		s = mustOpen(t, dir, kind)
		if used, err := s.holdsCell(); used || err != nil {
			t.Errorf("%s: it holds a cell: %v, %v", kind, used, err)
		}
		for _, left := range []string{unfinished, filepath.Join(dir, votesName+newSuffix)} {
			if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s is left: %v", kind, left, err)
			}
		}
	}
}

// TestInterruptedInstall: a replica that was killed after it had stored a snapshot
// of the leader's, and before it had emptied its log, which ends earlier, starts
// again and takes the entries that follow the snapshot.
func TestInterruptedInstall(t *testing.T) {
	for _, kind := range []LogStore{BoltStore, WALStore} {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir, kind, 9, 0)
			s := mustOpen(t, dir, kind)
			takeSnapshot(t, s, 20)
			mustClose(t, s)
			for next := uint64(21); next < 24; next++ { // it goes on to be restarted
				opts := testStoreOptions()
				opts.Fatal = func(err error) { t.Error(err) }
				s, err := Open(dir, kind, opts)
				if err != nil {
					t.Fatal(err)
				}
				if s.last != next-1 {
					t.Errorf("it says that it ends at %d, want %d", s.last, next-1)
				}
				if err := s.guard.call(func() error { return s.logs.StoreLogs(crashBatch(next, next, 1)) }); err != nil {
					t.Errorf("append entry %d: %v", next, err)
				}
				if first, err := s.rawLogs.FirstIndex(); first != 21 || err != nil {
					t.Errorf("the log begins at %d, want 21: %v", first, err)
				}
				mustClose(t, s)
			}
		})
	}
}

// TestGapInOldLog: an earlier version left entries before a snapshot of the leader's in
// bbolt's log, and went on behind it. Nobody knows whether they were ever committed.
func TestGapInOldLog(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, BoltStore, 9, 20)
	s := mustOpen(t, dir, BoltStore)
	if err := errors.Join(s.logs.StoreLogs(crashBatch(1, 9, 1)), s.logs.StoreLogs(crashBatch(21, 22, 1))); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	s = mustOpen(t, dir, BoltStore)
	if first, err := s.rawLogs.FirstIndex(); first != 21 || s.last != 22 || err != nil {
		t.Errorf("entries %d to %d are left, want 21 to 22: %v", first, s.last, err)
	}
}

// TestInterruptedBootstrap: Raft writes the first term and then the first entry.
// A crash between the two must not keep the replica from bootstrapping its cell.
func TestInterruptedBootstrap(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, BoltStore)
	if err := s.stable.SetUint64([]byte(currentTermKey), 1); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	s = mustOpen(t, dir, BoltStore)
	if err := s.who.Store(rosterAlone(s.who.Get()), false); err != nil {
		t.Fatal(err)
	}
	conf := raft.DefaultConfig()
	conf.LocalID = "r1"
	_, wire := raft.NewInmemTransport("a")
	if err := s.Bootstrap(conf, wire); err != nil {
		t.Fatal(err)
	}
	if used, err := s.holdsCell(); !used || err != nil {
		t.Errorf("bootstrapped: %v, %v", used, err)
	}
	if err := s.Bootstrap(conf, wire); !errors.Is(err, raft.ErrCantBootstrap) {
		t.Errorf("bootstrapped twice: %v", err)
	}
	for _, state := range []func(*Stores) error{
		func(s *Stores) error { return s.stable.SetUint64([]byte(currentTermKey), 2) },
		func(s *Stores) error {
			return errors.Join(s.stable.SetUint64([]byte(currentTermKey), 1), s.logs.StoreLog(crashEntry(1, 1)))
		},
	} {
		s := mustOpen(t, t.TempDir(), BoltStore)
		if err := state(s); err != nil {
			t.Fatal(err)
		}
		if used, err := s.holdsCell(); !used || err != nil {
			t.Errorf("a replica that has taken part: %v, %v", used, err)
		}
	}
}

// TestVoteIsOneWrite: a crash between the two halves of a vote leaves the old
// vote. (With the new term and the old candidate, Raft would grant that
// candidate a second vote.)
func TestVoteIsOneWrite(t *testing.T) {
	dir := t.TempDir()
	term, candidate := []byte(voteTermKey), []byte(voteCandidateKey)
	s := mustOpen(t, dir, BoltStore)
	if err := s.who.Store(rosterAlone(s.who.Get()), true); err != nil {
		t.Fatal(err)
	}
	if err := s.logs.StoreLog(crashEntry(1, 1)); err != nil {
		t.Fatal(err)
	}
	vote := func(n uint64, who string) {
		if err := errors.Join(s.stable.SetUint64(term, n), s.stable.Set(candidate, []byte(who))); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, wantTerm uint64, want string) {
		t.Helper()
		n, err := s.stable.GetUint64(term)
		who, err2 := s.stable.Get(candidate)
		if err := errors.Join(err, err2); err != nil || n != wantTerm || string(who) != want {
			t.Errorf("%s: vote of term %d for %q, %v; want %d for %q", when, n, who, err, wantTerm, want)
		}
	}
	check("never voted", 0, "")
	vote(3, "b")
	check("voted", 3, "b")
	if err := s.stable.SetUint64([]byte("CurrentTerm"), 4); err != nil {
		t.Fatal(err)
	}
	if err := s.stable.SetUint64(term, 4); err != nil {
		t.Fatal(err)
	}
	check("half way", 3, "b")
	mustClose(t, s) // the process dies here
	s = mustOpen(t, dir, BoltStore)
	check("after the crash", 3, "b")
	vote(5, "c")
	check("voted again", 5, "c")
	mustClose(t, s)
	s = mustOpen(t, dir, BoltStore)
	check("and restarted", 5, "c")
	if n, err := s.stable.GetUint64([]byte("CurrentTerm")); n != 4 || err != nil {
		t.Errorf("CurrentTerm is %d, %v; want 4", n, err)
	}
}

// TestVoteChecksum: a vote that has rotted is noticed, not believed.
func TestVoteChecksum(t *testing.T) {
	s := mustOpen(t, t.TempDir(), BoltStore)
	key := []byte("CurrentTerm")
	if err := s.stable.SetUint64(key, 7); err != nil {
		t.Fatal(err)
	}
	votes := s.rawVotes.(*voteStore)
	for i := range 12 {
		if err := votes.SetUint64(key, 7); err != nil {
			t.Fatal(err)
		}
		err := votes.db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(votesBucket))
			value := append([]byte{}, b.Get(key)...)
			value[i] ^= 1
			return b.Put(key, value)
		})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := votes.GetUint64(key); api.CodeOf(err) != api.Corrupt {
			t.Errorf("byte %d changed: %d, %v; want Corrupt", i, n, err)
		}
	}
}
