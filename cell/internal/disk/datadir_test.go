package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
)

// TestDataDirIsOneReplicas: a directory serves only the replica for which it
// was made, and one process at a time.
func TestDataDirIsOneReplicas(t *testing.T) {
	onEachStore(t, func(t *testing.T, kind LogStore, dir string) {
		dir = filepath.Join(dir, "of", "replica")
		testbed.NoErr(t, os.MkdirAll(filepath.Join(dir, "lost+found"), 0o755)) // as on a separate disk
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

// TestDataDirRefusesLoss: if any part of a replica's directory is missing or
// damaged, the replica does not start as a new one.
func TestDataDirRefusesLoss(t *testing.T) {
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			testbed.NoErr(t, os.RemoveAll(filepath.Join(dir, name)))
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
		testbed.NoErr(t, os.Chmod(filepath.Join(dir, snapshotsName), 0o755)) // as versions before made it
		mustClose(t, mustOpen(t, dir, store))
		entries := testbed.Must(os.ReadDir(dir))(t)
		found := false
		for _, e := range entries {
			about := testbed.Must(e.Info())(t)
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

// No replica opens a directory whose replica was contradicted, whatever has become of the note; who only looks does.
func TestContradictedDirectoryIsRefused(t *testing.T) {
	for name, spoil := range map[string]string{"whole": "", "torn": "{\"index\":", "empty": " ", "of something else": "{}"} {
		dir := t.TempDir()
		opts := Options{Cell: "foo", ID: "r1", Logger: slog.New(slog.DiscardHandler), Fatal: func(error) {}, Silence: func() {}, Bootstrap: true}
		s, err := Open(dir, BoltStore, opts)
		testbed.NoErr(t, err)
		testbed.NoErr(t, s.NoteContradiction(Contradiction{Index: 7, By: []string{"r2", "r3"}, Why: "the reason"}))
		testbed.NoErr(t, s.Close())
		if path := filepath.Join(dir, ContradictionName); spoil != "" {
			testbed.NoErr(t, os.WriteFile(path, []byte(spoil), 0o600))
		} else if c, err := ReadContradiction(dir); err != nil || c.Index != 7 || len(c.By) != 2 {
			t.Errorf("%+v, %v", c, err)
		}
		_, err = Open(dir, BoltStore, opts)
		if !errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), ContradictionName) || spoil == "" && !strings.Contains(err.Error(), "the reason") {
			t.Errorf("%s: %v", name, err)
		}
		opts.Inspect = true
		s = testbed.Must(Open(dir, BoltStore, opts))(t)
		testbed.NoErr(t, s.Close())
	}
}

// A disk that is getting full is reported in time: in the log, though not in
// every line, and in /readyz.
func TestDiskNearlyFull(t *testing.T) {
	s := NewSpace("/data", nil, nil)
	for free, want := range map[int64]string{0: "0 MiB are free", 86 << 20: "86 MiB are free", minFree - 1: "1023 MiB are free", minFree: "", -1: ""} {
		s.free.Store(free)
		if note := s.Note(); (note == "") != (want == "") || !strings.Contains(note, want) || strings.Contains(note, "/data") {
			t.Errorf("with %d bytes free /readyz says %q", free, note)
		}
	}
	full := ExplainFull(t.TempDir(), fmt.Errorf("make a segment: %w", syscall.ENOSPC))
	for _, want := range []string{"the disk is full", "MiB are free", "a start needs 64 MiB"} {
		if !strings.Contains(full.Error(), want) {
			t.Errorf("a start on a full disk: %v; want %q in it", full, want)
		}
	}
	if other := errors.New("other"); !errors.Is(ExplainFull("/", other), other) {
		t.Error("every error is a full disk")
	}
}

// For a directory that does not exist, nothing is reported.
func TestDiskOfADirectoryThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testbed.Lines{}
		s := NewSpace(filepath.Join(t.TempDir(), "gone"), func() session.Instant { return 0 }, slog.New(slog.NewTextHandler(log, nil)))
		go s.Watch(t.Context())
		synctest.Wait()
		if s.Seen() != -1 || len(log.Take()) > 0 || s.Note() != "" {
			t.Errorf("%d bytes are free where there is no directory; %q", s.Seen(), s.Note())
		}
	})
}
