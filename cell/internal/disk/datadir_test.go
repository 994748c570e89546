package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/cell/internal/identity"
)

// TestDataDirIsOneReplicas: a directory serves only the replica for which it
// was made, and one process at a time.
func TestDataDirIsOneReplicas(t *testing.T) {
	for _, kind := range LogStores() {
		t.Run(string(kind), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "of", "replica")
			if err := os.MkdirAll(filepath.Join(dir, "lost+found"), 0o755); err != nil { // as on a separate disk
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

// TestDataDirRefusesLoss: if any part of a replica's directory is missing or
// damaged, the replica does not start as a new one.
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

// A snapshot has the secret of the cell in it. The directories of a replica are for its user alone, whatever they were before and whatever its umask is.
func TestDirectoriesAreForTheirUser(t *testing.T) {
	for _, store := range LogStores() {
		dir := filepath.Join(t.TempDir(), "data")
		filled(t, dir, store, 3, 0)
		s := mustOpen(t, dir, store)
		takeSnapshot(t, s, 2)
		mustClose(t, s)
		if err := os.Chmod(filepath.Join(dir, snapshotsName), 0o755); err != nil { // as versions before made it
			t.Fatal(err)
		}
		mustClose(t, mustOpen(t, dir, store))
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, e := range entries {
			about, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			found = found || e.Name() == snapshotsName
			if about.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %s has mode %v", store, e.Name(), about.Mode())
			}
		}
		if about, err := os.Stat(dir); err != nil || about.Mode().Perm() != 0o700 || !found {
			t.Errorf("%s: the directory has mode %v (%v), snapshots in it: %v", store, about.Mode(), err, found)
		}
	}
}
