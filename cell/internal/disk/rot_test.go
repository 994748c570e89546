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
// older one and the log behind it have everything. It neither uses the damaged snapshot nor sends
// it to others.
func TestNewestSnapshotRots(t *testing.T) {
	for _, kind := range LogStores() {
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
				testbed.Await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == last })
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
				testbed.Await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == next })
				if err := errors.Join(r.machine.check(), r.stop()); err != nil {
					t.Error(err)
				}
			}
		})
	}
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
			if err := s.logs.DeleteRange(1, 5); err != nil {
				t.Fatal(err)
			}
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
			if err := os.Rename(aside, path); err != nil {
				t.Fatal(err)
			}
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
				r, err := openCrashReplica(dir, WALStore, nil)
				if err != nil {
					t.Fatal(err)
				}
				for i, step := range []crashSend{appendStep(2, 2, 10, 10), nil, appendStep(3, 11, 14, 11)} {
					if _, err := r.do(step); err != nil {
						t.Fatalf("step %d: %v", i, err)
					}
				}
				metas, err := filepath.Glob(filepath.Join(dir, snapshotsName, "2-10-*", metaName))
				if err != nil || len(metas) != 1 {
					t.Fatalf("snapshots %q, %v", metas, err)
				}
				text, err := os.ReadFile(metas[0])
				if err != nil {
					t.Fatal(err)
				}
				rotten := strings.Replace(string(text), rot[0], rot[1], 1)
				if rotten == string(text) {
					t.Fatalf("%s: %s is missing", text, rot[0])
				}
				if err := os.WriteFile(metas[0], []byte(rotten), 0o600); err != nil {
					t.Fatal(err)
				}
				if !summed {
					if err := os.Remove(filepath.Join(filepath.Dir(metas[0]), metaSumName)); err != nil {
						t.Fatal(err)
					}
				}
				list, err := r.s.snapshots.List()
				if err != nil {
					t.Fatal(err)
				}
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
		r, err := openCrashReplica(dir, WALStore, nil)
		if err != nil {
			t.Fatal(err)
		}
		snapshots := func(pattern string) []string {
			paths, err := filepath.Glob(filepath.Join(dir, snapshotsName, pattern))
			if err != nil {
				t.Fatal(err)
			}
			return paths
		}
		for last := uint64(4); last <= 10; last += 2 {
			if _, err := r.do(appendStep(2, last-1, last, last)); err != nil {
				t.Fatal(err)
			}
			testbed.Await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == last })
			if _, err := r.do(nil); err != nil {
				t.Fatal(err)
			}
			if last == 4 {
				meta := filepath.Join(snapshots("2-4-*")[0], metaName)
				text, err := os.ReadFile(meta)
				if err == nil {
					err = os.WriteFile(meta, []byte(strings.Replace(string(text), `"ID":"2-4-`, rotten, 1)), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if all := snapshots("*"); len(all) != maxSnapshots || len(snapshots("2-4-*")) > 0 {
			t.Errorf("%s: snapshots %q", rotten, all)
		}
		if r, err = openCrashReplica(dir, WALStore, nil); err != nil {
			t.Fatalf("%s: it does not start: %v", rotten, err)
		}
		if err := errors.Join(r.machine.check(), r.stop()); err != nil {
			t.Error(err)
		}
	}
}

// TestVotesRot: damaged votes, even if the damaged byte is in a key, are not treated as votes that
// were never given.
func TestVotesRot(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, BoltStore, 9, 0)
	s := mustOpen(t, dir, BoltStore)
	if err := errors.Join(s.stable.SetUint64([]byte(voteTermKey), 1), s.stable.Set([]byte(voteCandidateKey), []byte("candidate")), s.stable.SetUint64([]byte(currentTermKey), 1)); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	text, err := os.ReadFile(filepath.Join(dir, votesName))
	if err != nil {
		t.Fatal(err)
	}
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
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		overwrite(name, strings.ReplaceAll(string(text), was, "_"+was[1:]))(t, dir)
		if _, err := testStores(dir, WALStore); !errors.Is(err, identity.ErrRefused) || api.CodeOf(err) != api.Corrupt {
			t.Errorf("%s: %v, want a refusal", was, err)
		}
	}
}

// rosterRots flips a bit so that the file can still be read.
func rosterRots(t *testing.T, dir string) {
	text, err := os.ReadFile(filepath.Join(dir, rosterName))
	if err != nil {
		t.Fatal(err)
	}
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
