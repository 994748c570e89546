package sequencer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

func TestFileStoreKeepsTheNewest(t *testing.T) {
	name := filepath.Join(t.TempDir(), "guard")
	other := of(api.MustParsePath("/ls/foo/a b"), 7)
	store := openStore(t, name)
	for _, s := range []sequencer.Sequencer{of(primary, 41), of(primary, 57), other} {
		if err := store.Save(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Save(t.Context(), of(primary, 56)); !errors.Is(err, api.BadSequencer) || !strings.Contains(err.Error(), "57") {
		t.Errorf("saving an older one: %v", err)
	}
	if _, err := sequencer.OpenFileStore(name); !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("opening it twice: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for range 2 {
		if err := store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := store.Save(ended, of(primary, 99)); !errors.Is(err, api.Unavailable) {
			t.Errorf("Save after Close: %v", err)
		}
	}
	checkStored(t, openStore(t, name), of(primary, 57), other)
}

// An empty file name must not create a file in the working directory.
func TestFileStoreWithoutAName(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := sequencer.OpenFileStore(""); !errors.Is(err, api.InvalidArgument) {
		t.Errorf("it was opened, or the error is wrong: %v", err)
	}
	if made, err := os.ReadDir("."); err != nil || len(made) != 0 {
		t.Errorf("%v, %v", made, err)
	}
}

func checkStored(t *testing.T, store *sequencer.FileStore, want ...sequencer.Sequencer) {
	t.Helper()
	got, err := store.Load(t.Context())
	if err != nil || len(got) != len(want) {
		t.Fatalf("Load = %v, %v; want %v", got, err, want)
	}
	stored := map[sequencer.Sequencer]bool{}
	for _, s := range got {
		stored[s] = true
	}
	for _, s := range want {
		if !stored[s] {
			t.Errorf("Load = %v lacks %v", got, s)
		}
	}
}

// A crash between write and rename leaves a whole or half new file beside the
// old one. The store ignores it and overwrites it.
func TestCrashBeforeRename(t *testing.T) {
	name := filepath.Join(t.TempDir(), "guard")
	store := openStore(t, name)
	guard := newGuard(t, sequencer.GuardConfig{Store: store})
	accept(t, guard, of(primary, 41))
	_ = store.Close()
	if err := os.WriteFile(name+".new", []byte(strings.Repeat("half a file, and longer than the next whole one\n", 50)), 0o600); err != nil {
		t.Fatal(err)
	}
	store = openStore(t, name)
	guard = newGuard(t, sequencer.GuardConfig{Store: store})
	refuse(t, guard, of(primary, 40), api.BadSequencer, "41")
	accept(t, guard, of(primary, 57))
	_ = store.Close()
	checkStored(t, openStore(t, name), of(primary, 57))
}

// A file that cannot be written refuses the new token and keeps the old one.
func TestUnwritableFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "guard")
	store := openStore(t, name)
	guard := newGuard(t, sequencer.GuardConfig{Store: store})
	accept(t, guard, of(primary, 41))
	if err := os.Mkdir(name+".new", 0o700); err != nil { // a directory in the place of the next file
		t.Fatal(err)
	}
	refuse(t, guard, of(primary, 57), api.Unavailable, "could not be stored")
	accept(t, guard, of(primary, 41))
	if err := os.Remove(name + ".new"); err != nil {
		t.Fatal(err)
	}
	accept(t, guard, of(primary, 57))
}

// A damaged file is an error, never read as a file with fewer sequencers.
func TestDamagedFileIsRefused(t *testing.T) {
	name := filepath.Join(t.TempDir(), "guard")
	store := openStore(t, name)
	for _, s := range []sequencer.Sequencer{of(primary, 41), of(api.MustParsePath("/ls/foo/b"), 7)} {
		if err := store.Save(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	_ = store.Close()
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	damaged := []string{
		string(whole) + "\n", string(whole) + lines[1],
		lines[0] + lines[1] + lines[3],                       // a line is missing
		lines[0] + lines[1] + lines[1] + lines[3],            // a line is repeated
		lines[0] + lines[1] + lines[2] + lines[2] + lines[3], // the count is repeated
	}
	for at := range whole {
		flipped := append([]byte(nil), whole...)
		flipped[at] ^= 1 << (at % 7)
		damaged = append(damaged, string(whole[:at]), string(flipped))
	}
	for _, contents := range damaged {
		if err := os.WriteFile(name, []byte(contents), 0o600); err != nil {
			t.Fatal(err)
		}
		store, err := sequencer.OpenFileStore(name)
		if !errors.Is(err, api.Corrupt) || !strings.Contains(err.Error(), "restore it") {
			t.Errorf("%q: %v", contents, err)
		}
		if store != nil {
			_ = store.Close()
		}
	}
}

// faulty is a FileStore some of whose saves fail, before or after they take
// effect.
type faulty struct {
	*sequencer.FileStore
	before, after bool
}

var errDisk = errors.New("disk")

func (f *faulty) Save(ctx context.Context, s sequencer.Sequencer) error {
	if f.before {
		return errDisk
	}
	if err := f.FileStore.Save(ctx, s); err != nil || !f.after {
		return err
	}
	return errDisk
}

// twin is a naive model of this test's Guard: the highest token let in, and the
// highest on disk, of each lock, and the cell of the first attempt.
type twin struct {
	inside, stored         map[api.Path]uint64
	insideCell, storedCell api.CellID
}

// decide returns the code of the answer to s.
func (w *twin) decide(s sequencer.Sequencer, before, after bool) api.Code {
	highest := w.inside[s.Path]
	switch {
	case w.insideCell != "" && s.Cell != w.insideCell, s.Token() < highest:
		return api.BadSequencer
	case s.Token() == highest:
		return api.OK
	}
	w.insideCell = s.Cell
	switch {
	case before:
		return api.Unavailable
	case s.Token() < w.stored[s.Path]:
		return api.BadSequencer // an earlier save did succeed
	}
	w.stored[s.Path], w.storedCell = s.Token(), s.Cell
	if after {
		return api.Unavailable
	}
	w.inside[s.Path] = s.Token()
	return api.OK
}

// restart drops everything that is not on disk.
func (w *twin) restart() {
	for path, token := range w.stored {
		w.inside[path] = token
	}
	w.insideCell = w.storedCell
}

func TestGuardMatchesNaiveTwin(t *testing.T) {
	root := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		directory, err := os.MkdirTemp(root, "run")
		if err != nil {
			t.Fatal(err)
		}
		m := &model{name: filepath.Join(directory, "guard"), twin: twin{inside: map[api.Path]uint64{}, stored: map[api.Path]uint64{}}}
		m.open(t)
		defer func() { _ = m.store.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"check":   m.check,
			"restart": m.restart,
			"":        func(*rapid.T) {},
		})
	})
}

type model struct {
	name  string
	store *faulty
	guard *sequencer.Guard
	twin  twin
}

func (m *model) open(t *rapid.T) {
	store, err := sequencer.OpenFileStore(m.name)
	if err != nil {
		t.Fatal(err)
	}
	m.store = &faulty{FileStore: store}
	m.guard, err = sequencer.NewGuard(t.Context(), sequencer.GuardConfig{Prefix: api.MustParsePath("/ls/foo"), Store: m.store})
	if err != nil {
		t.Fatal(err)
	}
}

func (m *model) check(t *rapid.T) {
	path := rapid.SampledFrom([]string{"/ls/foo/a", "/ls/foo/b"}).Draw(t, "path")
	s := of(api.MustParsePath(path), rapid.Uint64Range(1, 12).Draw(t, "token"))
	s.Cell = rapid.SampledFrom([]api.CellID{cellA, cellA, cellB}).Draw(t, "cell")
	fault := rapid.SampledFrom([]string{"", "", "", "before", "after"}).Draw(t, "fault")
	m.store.before, m.store.after = fault == "before", fault == "after"
	want := m.twin.decide(s, m.store.before, m.store.after)
	if _, err := m.guard.Check(t.Context(), s.String()); api.CodeOf(err) != want {
		t.Fatalf("Check(%s): %v; the twin says %v", s, err, want)
	}
}

// restart crashes, often while the file is being replaced, and starts again.
func (m *model) restart(t *rapid.T) {
	if rapid.Bool().Draw(t, "half-written") {
		if err := os.WriteFile(m.name+".new", []byte("chubby gua"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.store.Close(); err != nil {
		t.Fatal(err)
	}
	m.twin.restart()
	m.open(t)
}
