package cell

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// TestNewestSnapshotRots: a replica starts, and starts again, though its newest snapshot
// has rotted, if an older one and the log behind that have everything. It neither goes on
// from the rotten one nor sends it to others.
func TestNewestSnapshotRots(t *testing.T) {
	for _, kind := range []LogStore{BoltStore, WALStore} {
		t.Run(string(kind), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			r, err := openCrashReplica(dir, kind, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, step := range []crashSend{appendStep(2, 2, 10, 10), nil, appendStep(3, 11, 12, 12), nil} {
				if _, err := r.do(step); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				last := r.raft.LastIndex()
				await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == last })
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			newest, err := filepath.Glob(filepath.Join(dir, snapshotsName, "3-12-*"))
			if err != nil || len(newest) != 1 {
				t.Fatalf("snapshots %q, %v", newest, err)
			}
			overwrite("state.bin", "other")(t, newest[0])
			for next := uint64(13); next < 15; next++ {
				if r, err = openCrashReplica(dir, kind, nil); err != nil {
					t.Fatalf("it does not start: %v", err)
				}
				if list, err := r.s.snapshots.List(); err != nil || len(list) != 1 || list[0].Index != 10 {
					t.Errorf("snapshots %v, %v; want the one of entry 10", list, err)
				}
				if _, err := r.do(appendStep(3, next, next, next)); err != nil {
					t.Error(err)
				}
				await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == next })
				if err := errors.Join(r.machine.check(), r.stop()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestDeniedIsNotDamaged: what the system does not let a replica read is not taken for
// lost or damaged. It is put right, and all is well.
func TestDeniedIsNotDamaged(t *testing.T) {
	for name, c := range map[string]struct {
		kind LogStore
		file string
	}{
		"votes":               {WALStore, votesName},
		"log":                 {BoltStore, boltLogName},
		"WAL's metadata":      {WALStore, filepath.Join(walLogName, walMetaName)},
		"snapshot":            {BoltStore, filepath.Join(snapshotsName, "*-7-*", "state.bin")},
		"snapshot's metadata": {BoltStore, filepath.Join(snapshotsName, "*-7-*", metaName)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir, c.kind, 9, 7)
			s := mustOpen(t, dir, c.kind)
			if err := s.logs.DeleteRange(1, 5); err != nil {
				t.Fatal(err)
			}
			mustClose(t, s)
			paths, err := filepath.Glob(filepath.Join(dir, c.file))
			if err != nil || len(paths) != 1 {
				t.Fatalf("files %q, %v", paths, err)
			}
			path, aside := paths[0], filepath.Join(t.TempDir(), "aside")
			if err := errors.Join(os.Rename(path, aside), os.Symlink(path, path)); err != nil { // a link to itself is denied to everybody, root too
				t.Fatal(err)
			}
			_, err = testStores(dir, c.kind)
			if err == nil || errors.Is(err, ErrRefused) || api.CodeOf(err) != api.Unavailable || strings.Contains(err.Error(), lossAdvice) {
				t.Errorf("%v, want an error that says nothing of damage", err)
			}
			if err := os.Rename(aside, path); err != nil {
				t.Fatal(err)
			}
			mustClose(t, mustOpen(t, dir, c.kind))
		})
	}
}
