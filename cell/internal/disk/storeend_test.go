package disk

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
)

// TestDataThatEndsTooEarly: a replica whose data end before what it has held does not start, even
// if the rest has no gap.
func TestDataThatEndsTooEarly(t *testing.T) {
	installed := func(t *testing.T, dir string, kind LogStore) (snapshot string) {
		s := mustOpen(t, dir, kind)
		takeSnapshot(t, s, 20) // the master's snapshot: the log ends at 9
		mustClose(t, s)
		mustClose(t, mustOpen(t, dir, kind)) // opening empties the log
		found, err := filepath.Glob(filepath.Join(dir, snapshotsName, "1-20-*"))
		if err != nil || len(found) != 1 {
			t.Fatalf("snapshots %q, %v", found, err)
		}
		return found[0]
	}
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string, kind LogStore)
		want   string
	}{
		"the master's snapshot rots": {func(t *testing.T, dir string, kind LogStore) {
			overwrite("state.bin", "other")(t, installed(t, dir, kind))
		}, "the snapshot of entry 20 cannot be read"},
		"its metadata rots": {func(t *testing.T, dir string, kind LogStore) {
			overwrite("meta.json", "{")(t, installed(t, dir, kind))
		}, "the snapshot of entry 20 cannot be read"},
		"the log is a new one": {func(t *testing.T, dir string, kind LogStore) {
			used := mustOpen(t, dir, kind)
			testbed.NoErr(t, used.stable.SetUint64([]byte(currentTermKey), 3))
			mustClose(t, used)
			for _, path := range []string{boltLogName, walLogName, logNoteName, snapshotsName} {
				testbed.NoErr(t, os.RemoveAll(filepath.Join(dir, path)))
			}
			fresh := t.TempDir()
			mustClose(t, mustOpen(t, fresh, kind))
			for path, text := range filesOf(t, fresh) {
				path = filepath.Join(dir, strings.TrimPrefix(path, fresh))
				if base := filepath.Base(path); base == votesName || base == markerName || base == lockName {
					continue
				}
				testbed.NoErr(t, os.MkdirAll(filepath.Dir(path), 0o700))
				testbed.NoErr(t, os.WriteFile(path, text, 0o600))
			}
			testbed.NoErr(t, os.MkdirAll(filepath.Join(dir, snapshotsName), 0o700))
		}, "neither an entry nor a snapshot"},
	} {
		for _, kind := range LogStores() {
			t.Run(name+", "+string(kind), func(t *testing.T) {
				dir := t.TempDir()
				filled(t, dir, kind, 9, 7)
				c.damage(t, dir, kind)
				s, err := testStores(dir, kind)
				if err == nil {
					mustClose(t, s)
				}
				if api.CodeOf(err) != api.Corrupt || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), identity.LossAdvice) {
					t.Errorf("%v, want Corrupt with %q and what to do", err, c.want)
				}
			})
		}
	}
}

// TestLogThatEndsTooEarly: confirmed entries are missed if an old copy of the log is put back. They
// are also missed if bbolt goes back to the state before the last, because the page that marks the
// newest state is damaged.
func TestLogThatEndsTooEarly(t *testing.T) {
	for name, damage := range map[string]func(before, after []byte) []byte{
		"an old copy": func(before, _ []byte) []byte { return before },
		"a rotten page": func(_, after []byte) []byte {
			page, txid := os.Getpagesize(), 64 // of a meta page
			newest := 0
			if binary.LittleEndian.Uint64(after[page+txid:]) > binary.LittleEndian.Uint64(after[txid:]) {
				newest = page
			}
			after[newest+txid] ^= 1
			return after
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, boltLogName)
			var files [2][]byte
			for i := range files {
				logs, s := openRawLog(t, dir, BoltStore)
				testbed.NoErr(t, logs.StoreLogs(crashBatch(uint64(10*i+1), uint64(10*i+10), 1)))
				mustClose(t, s)
				text := testbed.Must(os.ReadFile(path))(t)
				files[i] = text
			}
			testbed.NoErr(t, os.WriteFile(path, damage(files[0], files[1]), 0o600))
			s := &Stores{dir: dir}
			if err := s.openLog(storeOf(t, BoltStore), Options{}); api.CodeOf(err) != api.Corrupt || !strings.Contains(err.Error(), "entry 20 had been confirmed") {
				t.Error(err)
			}
			s.failStop = newFailStop(time.Minute, func() {}, func(error) {})
			mustClose(t, s)
		})
	}
}

// TestSnapshotThatCannotBeRestored: the newest snapshot is intact, and the state machine cannot
// read it. Raft would go back to an older one, whether or not the log continues from there.
func TestSnapshotThatCannotBeRestored(t *testing.T) {
	for name, c := range map[string]struct {
		older    bool   // there is another snapshot, of entry 10
		snapshot uint64 // the entry of the newest
		last     uint64 // of the log
		refused  string // empty if the replica starts
	}{
		"the log reaches back":         {older: true, snapshot: 10, last: 10},
		"the log is empty":             {older: true, snapshot: 20, last: 20, refused: "entry 20 cannot be restored"},
		"the log begins behind it":     {older: true, snapshot: 20, last: 25, refused: "cannot go on from the snapshots and the log"},
		"there is no other, and a log": {snapshot: 10, last: 10, refused: "cannot go on from the snapshots and the log"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			r, err := openCrashReplica(dir, WALStore, nil)
			testbed.NoErr(t, err)
			testbed.NoErr(t, testbed.ErrOf(r.do(appendStep(2, 2, 10, 10))))
			if c.older {
				testbed.NoErr(t, testbed.ErrOf(r.do(nil)))
			}
			takeSnapshotOf(t, r.s, c.snapshot, 2)
			testbed.NoErr(t, r.stop())
			if c.last > c.snapshot {
				s := mustOpen(t, dir, WALStore) // opening empties the log
				testbed.NoErr(t, s.logs.StoreLogs(crashBatch(c.snapshot+1, c.last, 2)))
				mustClose(t, s)
			}
			r, err = openCrashReplica(dir, WALStore, nil)
			if err == nil {
				if has := r.raft.LastIndex(); has != c.last {
					t.Errorf("it goes on from entry %d, and held %d", has, c.last)
				}
				testbed.Report(t, r.stop())
			}
			if errors.Is(err, identity.ErrRefused) != (c.refused != "") || c.refused != "" && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v, want %q", err, c.refused)
			}
		})
	}
}
