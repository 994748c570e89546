package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/hashicorp/raft"
)

// TestStartVerifiesLog: Raft panics if it cannot read an entry while it starts,
// and if there is a gap between snapshot and log. The stores must find both
// before that.
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

// TestInterruptedStart: what an interrupted first start or snapshot leaves
// behind does no harm.
func TestInterruptedStart(t *testing.T) {
	for _, kind := range LogStores() {
		dir := filepath.Join(t.TempDir(), "not", "there")
		s := mustOpen(t, dir, kind)
		mustClose(t, s)
		for _, name := range []string{markerName, votesName} { // as if the start had been interrupted before
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

// TestInterruptedInstall: a replica is killed after it has stored a snapshot of
// the leader, and before it has emptied its log, which ends earlier. It starts
// again and accepts the entries that follow the snapshot.
func TestInterruptedInstall(t *testing.T) {
	for _, kind := range LogStores() {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir, kind, 9, 0)
			s := mustOpen(t, dir, kind)
			takeSnapshot(t, s, 20)
			mustClose(t, s)
			for next := uint64(21); next < 24; next++ { // it is restarted again and again
				opts := testStoreOptions()
				opts.Fatal = func(err error) { t.Error(err) }
				s, err := Open(dir, kind, opts)
				if err != nil {
					t.Fatal(err)
				}
				if s.last != next-1 {
					t.Errorf("it says that it ends at %d, want %d", s.last, next-1)
				}
				if err := s.failStop.callOnGoroutine(func() error { return s.logs.StoreLogs(crashBatch(next, next, 1)) }); err != nil {
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

// TestGapInOldLog: an earlier version left entries before a snapshot of the leader in bbolt's log,
// and continued behind it. It is unknown whether they were ever committed.
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

// TestInterruptedBootstrap: Raft writes the first term and then the first
// entry. After a crash between the two, the replica must still be able to
// bootstrap its cell.
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
