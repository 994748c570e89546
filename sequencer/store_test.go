package sequencer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"pgregory.net/rapid"
)

func TestFileStoreKeepsTheNewest(t *testing.T) {
	name := filepath.Join(t.TempDir(), "guard")
	other := of(api.MustParsePath("/ls/foo/a b"), 7)
	store := openStore(t, name)
	for _, s := range []sequencer.Sequencer{of(primary, 41), of(primary, 57), other} {
		must(t, store.Save(t.Context(), s))
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

// A damaged file is an error, never read as a file with fewer sequencers.
func TestDamagedFileIsRefused(t *testing.T) {
	name := filepath.Join(t.TempDir(), "guard")
	store := openStore(t, name)
	for _, s := range []sequencer.Sequencer{of(primary, 41), of(api.MustParsePath("/ls/foo/b"), 7)} {
		must(t, store.Save(t.Context(), s))
	}
	_ = store.Close()
	whole := ok(os.ReadFile(name))(t)
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
		must(t, os.WriteFile(name, []byte(contents), 0o600))
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
		directory := ok(os.MkdirTemp(root, "run"))(t)
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
	store := ok(sequencer.OpenFileStore(m.name))(t)
	m.store = &faulty{FileStore: store}
	m.guard = ok(sequencer.NewGuard(t.Context(), sequencer.GuardConfig{Prefix: api.MustParsePath("/ls/foo"), Store: m.store}))(t)
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

// restart crashes, often while the file is being replaced, which leaves a whole or half new file, and starts again.
func (m *model) restart(t *rapid.T) {
	if rapid.Bool().Draw(t, "half-written") {
		must(t, os.WriteFile(m.name+".new", []byte(strings.Repeat("half a file, and longer than the next whole one\n", 50)), 0o600))
	}
	must(t, m.store.Close())
	m.twin.restart()
	m.open(t)
}

// What one Guard of a FileStore lets in is the newest for the others, too, also of a token that they have let in before; and
// their sections exclude each other.
func TestGuardsOfOneStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := openStore(t, filepath.Join(t.TempDir(), "guard"))
		one := newGuard(t, sequencer.GuardConfig{Locks: []api.Path{primary}, Store: store})
		two := newGuard(t, sequencer.GuardConfig{Locks: []api.Path{primary}, Store: store})
		accept(t, one, of(primary, 5))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		older := begin(ctx, one, 5)
		inside := older.isInside(t)
		newer := begin(ctx, two, 7)
		newer.waits(t)
		if inside.Err() == nil {
			t.Error("the request of token 5 goes on undisturbed in the one guard, though the other waits with 7")
		}
		refuse(t, one, of(primary, 5), api.BadSequencer, "5", "7")
		refuse(t, one, of(primary, 6), api.BadSequencer, "6", "7")
		accept(t, one, of(primary, 7))
		close(older.end)
		newer.isInside(t)
		close(newer.end)
		refuse(t, two, of(primary, 5), api.BadSequencer, "5", "7")
	})
}

// A file has one lock by whichever name it is opened, and a token is saved where the name leads.
func TestFileStoreBehindLinks(t *testing.T) {
	volume, dir := t.TempDir(), t.TempDir()
	name := filepath.Join(volume, "guard")
	for link, to := range map[string]string{"guard": name, "relative": "guard", "volume": volume} {
		must(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	for _, path := range []string{"guard", "relative", "volume/guard"} { // the first before there is a file
		path = filepath.Join(dir, path)
		store, err := sequencer.OpenFileStore(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := sequencer.OpenFileStore(name); !errors.Is(err, api.Unavailable) {
			t.Errorf("the file is open as %s, and opening it by its own name: %v", path, err)
		}
		must(t, errors.Join(store.Save(t.Context(), of(primary, 7)), store.Close()))
	}
	if info, err := os.Lstat(filepath.Join(dir, "guard")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	checkStored(t, openStore(t, name), of(primary, 7))
	must(t, os.Symlink("circle", filepath.Join(dir, "circle")))
	if _, err := sequencer.OpenFileStore(filepath.Join(dir, "circle")); !errors.Is(err, api.Unavailable) {
		t.Errorf("a link to itself: %v", err)
	}
}

// A store whose lock file was deleted stores nothing more: another process may have opened it since.
func TestLockFileIsDeleted(t *testing.T) {
	name := filepath.Join(t.TempDir(), "guard")
	one := openStore(t, name)
	must(t, os.Remove(name+".lock"))
	refused := func() {
		t.Helper()
		if err := one.Save(t.Context(), of(primary, 8)); !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "guard.lock was deleted") {
			t.Errorf("Save: %v", err)
		}
	}
	refused()
	two := openStore(t, name)
	must(t, two.Save(t.Context(), of(primary, 9)))
	refused()
	must(t, two.Close())
	checkStored(t, openStore(t, name), of(primary, 9))
}

// fatal is a test of package testing or rapid.
type fatal interface {
	Helper()
	Fatal(args ...any)
}

func must(t fatal, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ok returns what a call returns, and ends the test on its error.
func ok[T any](v T, err error) func(fatal) T {
	return func(t fatal) T {
		t.Helper()
		must(t, err)
		return v
	}
}
