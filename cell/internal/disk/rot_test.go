package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

// TestNewestSnapshotRots: a replica starts, twice, though its newest snapshot is damaged, if an
// older one and the log behind it have everything, however many entries there are since the older
// one. It neither uses the damaged snapshot nor sends it to others.
func TestNewestSnapshotRots(t *testing.T) {
	onEachStore(t, func(t *testing.T, kind LogStore, dir string) {
		r := testbed.Must(openCrashReplica(dir, kind, nil))(t)
		// Raft keeps three entries, as crashConf says.
		r.pass(t, appendStep(2, 2, 10, 10), nil, appendStep(3, 11, 14, 14), appendStep(4, 15, 30, 30), nil, appendStep(4, 31, 50, 50), nil)
		if first, err := r.s.rawLogs.FirstIndex(); first != 31 || err != nil {
			t.Errorf("the log begins at %d, %v; want the entry after the snapshot before the newest", first, err)
		}
		testbed.NoErr(t, r.stop())
		newest, err := filepath.Glob(filepath.Join(dir, snapshotsName, "4-50-*"))
		if err != nil || len(newest) != 1 {
			t.Fatalf("snapshots %q, %v", newest, err)
		}
		overwrite("state.bin", "other")(t, newest[0])
		for next := uint64(51); next < 53; next++ {
			r = testbed.Must(openCrashReplica(dir, kind, nil))(t)
			if list, err := r.s.snapshots.List(); err != nil || len(list) == 0 || list[0].Index != 30 {
				t.Errorf("snapshots %v, %v; want the one of entry 30 first", list, err)
			}
			testbed.Report(t, testbed.ErrOf(r.do(appendStep(4, next, next, next))))
			testbed.Await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == next })
			testbed.Report(t, errors.Join(r.machine.check(), r.stop()))
		}
	})
}

// TestDeniedIsNotDamaged: files that the system does not let a replica read are not treated as lost
// or damaged. When an operator has corrected that, the replica starts.
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
			testbed.NoErr(t, s.logs.DeleteRange(1, 5))
			mustClose(t, s)
			paths, err := filepath.Glob(filepath.Join(dir, c.file))
			if err != nil || len(paths) != 1 {
				t.Fatalf("files %q, %v", paths, err)
			}
			path, aside := paths[0], filepath.Join(t.TempDir(), "aside")
			if err := errors.Join(os.Rename(path, aside), os.Symlink(path, path)); err != nil { // a link to itself cannot be read by any user, root included
				t.Fatal(err)
			}
			_, err = testStores(dir, c.kind)
			if err == nil || errors.Is(err, identity.ErrRefused) || api.CodeOf(err) != api.Unavailable || strings.Contains(err.Error(), identity.LossAdvice) {
				t.Errorf("%v, want an error that says nothing of damage", err)
			}
			testbed.NoErr(t, os.Rename(aside, path))
			mustClose(t, mustOpen(t, dir, c.kind))
		})
	}
}

// TestSnapshotsMetadataRot: a replica neither uses a snapshot whose metadata were changed, but can
// be read, nor sends it to others; with a checksum of the metadata, and without, as after a crash.
func TestSnapshotsMetadataRot(t *testing.T) {
	for name, rot := range map[string][2]string{
		"index":                 {`"Index":10,`, `"Index":12,`},
		"term":                  {`"Term":2,`, `"Term":3,`},
		"term in the past":      {`"Term":2,`, `"Term":1,`},
		"version":               {`"Version":1,`, `"Version":0,`},
		"size":                  {`"Size":`, `"Size":1`},
		"size's name":           {`"Size":`, `"Sise":`},
		"name":                  {`"ID":"2-10-`, `"ID":"2-18-`},
		"a member":              {`"ID":"r3"`, `"ID":"r2"`},
		"a member's address":    {`"Address":"a3"`, `"Address":"a1"`},
		"a member's vote":       {`{"Suffrage":0,"ID":"r2"`, `{"Suffrage":1,"ID":"r2"`},
		"configuration's index": {`"ConfigurationIndex":1,`, `"ConfigurationIndex":91,`},
	} {
		for _, summed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, summed %v", name, summed), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "data")
				r := testbed.Must(openCrashReplica(dir, WALStore, nil))(t)
				r.take(t, appendStep(2, 2, 10, 10), nil, appendStep(3, 11, 14, 11))
				metas, err := filepath.Glob(filepath.Join(dir, snapshotsName, "2-10-*", metaName))
				if err != nil || len(metas) != 1 {
					t.Fatalf("snapshots %q, %v", metas, err)
				}
				text := testbed.Must(os.ReadFile(metas[0]))(t)
				rotten := strings.Replace(string(text), rot[0], rot[1], 1)
				if rotten == string(text) {
					t.Fatalf("%s: %s is missing", text, rot[0])
				}
				testbed.NoErr(t, os.WriteFile(metas[0], []byte(rotten), 0o600))
				if !summed {
					testbed.NoErr(t, os.Remove(filepath.Join(filepath.Dir(metas[0]), metaSumName)))
				}
				list, err := r.s.snapshots.List()
				testbed.NoErr(t, err)
				if _, _, err := r.s.snapshots.Open(list[0].ID); err == nil {
					t.Error("it would send the snapshot to others")
				}
				_ = r.stop() // an error was returned already
				r, err = openCrashReplica(dir, WALStore, nil)
				if err == nil {
					t.Errorf("it goes on, from entry %d", r.raft.LastIndex())
					_ = r.stop()
				}
				if !errors.Is(err, identity.ErrRefused) || api.CodeOf(err) != api.Corrupt {
					t.Errorf("%v, want a refusal", err)
				}
			})
		}
	}
}

// TestOldSnapshotsNameRots: a snapshot whose metadata have another name is removed when it is too
// old, like others, and nothing else is.
func TestOldSnapshotsNameRots(t *testing.T) {
	for _, rotten := range []string{`"IE":"2-4-`, `"ID":"2-8-`} {
		dir := filepath.Join(t.TempDir(), "data")
		r := testbed.Must(openCrashReplica(dir, WALStore, nil))(t)
		snapshots := func(pattern string) []string {
			paths := testbed.Must(filepath.Glob(filepath.Join(dir, snapshotsName, pattern)))(t)
			return paths
		}
		for last := uint64(4); last <= 10; last += 2 {
			testbed.NoErr(t, testbed.ErrOf(r.do(appendStep(2, last-1, last, last))))
			testbed.Await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == last })
			testbed.NoErr(t, testbed.ErrOf(r.do(nil)))
			if last == 4 {
				meta := filepath.Join(snapshots("2-4-*")[0], metaName)
				text, err := os.ReadFile(meta)
				if err == nil {
					err = os.WriteFile(meta, []byte(strings.Replace(string(text), `"ID":"2-4-`, rotten, 1)), 0o600)
				}
				testbed.NoErr(t, err)
			}
		}
		testbed.NoErr(t, r.stop())
		if all := snapshots("*"); len(all) != maxSnapshots || len(snapshots("2-4-*")) > 0 {
			t.Errorf("%s: snapshots %q", rotten, all)
		}
		r = testbed.Must(openCrashReplica(dir, WALStore, nil))(t)
		testbed.Report(t, errors.Join(r.machine.check(), r.stop()))
	}
}

// TestVotesRot: damaged votes, even if the damaged byte is in a key, are not treated as votes that
// were never given.
func TestVotesRot(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, BoltStore, 9, 0)
	s := mustOpen(t, dir, BoltStore)
	testbed.NoErr(t, errors.Join(s.stable.SetUint64([]byte(voteTermKey), 1), s.stable.Set([]byte(voteCandidateKey), []byte("candidate")), s.stable.SetUint64([]byte(currentTermKey), 1)))
	mustClose(t, s)
	text := testbed.Must(os.ReadFile(filepath.Join(dir, votesName)))(t)
	for _, was := range []string{voteTermKey, voteCandidateKey, currentTermKey, voterKey, "candidate", votesBucket} {
		for at := range was {
			rotten := []byte(was)
			rotten[at] ^= 1
			overwrite(votesName, strings.ReplaceAll(string(text), was, string(rotten)))(t, dir)
			s, err := testStores(dir, BoltStore)
			if err == nil {
				mustClose(t, s)
			}
			if !errors.Is(err, identity.ErrRefused) || api.CodeOf(err) != api.Corrupt {
				t.Errorf("%s for %s: %v, want a refusal", rotten, was, err)
			}
		}
	}
	overwrite(votesName, string(text))(t, dir)
	mustClose(t, mustOpen(t, dir, BoltStore))
}

// TestWALMetadataRot: missing or contradictory files of raft-wal are damage, and starting the
// replica again does not help.
func TestWALMetadataRot(t *testing.T) {
	for _, was := range []string{"BaseIndex", "Codec", "Segments"} {
		dir := t.TempDir()
		filled(t, dir, WALStore, 9, 0)
		name := filepath.Join(walLogName, walMetaName)
		text := testbed.Must(os.ReadFile(filepath.Join(dir, name)))(t)
		overwrite(name, strings.ReplaceAll(string(text), was, "_"+was[1:]))(t, dir)
		if _, err := testStores(dir, WALStore); !errors.Is(err, identity.ErrRefused) || api.CodeOf(err) != api.Corrupt {
			t.Errorf("%s: %v, want a refusal", was, err)
		}
	}
}

// rosterRots flips a bit so that the file can still be read.
func rosterRots(t *testing.T, dir string) {
	text := testbed.Must(os.ReadFile(filepath.Join(dir, rosterName)))(t)
	overwrite(rosterName, strings.Replace(string(text), `"cell_id":"c"`, `"cell_id":"b"`, 1))(t, dir)
}

// votersOfCell returns the configuration of the cell to whose replica the
// stores belong.
func votersOfCell(s *Stores) raft.Configuration {
	addresses := map[string]string{"r1": "a"}
	if r := s.who.Get().Roster; r != nil {
		clear(addresses)
		for _, m := range r.Members {
			addresses[m.ID] = m.Raft
		}
	}
	return testbed.Voters(addresses)
}
