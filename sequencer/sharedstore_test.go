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
)

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
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
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
		if err := errors.Join(store.Save(t.Context(), of(primary, 7)), store.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Lstat(filepath.Join(dir, "guard")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	checkStored(t, openStore(t, name), of(primary, 7))
	if err := os.Symlink("circle", filepath.Join(dir, "circle")); err != nil {
		t.Fatal(err)
	}
	if _, err := sequencer.OpenFileStore(filepath.Join(dir, "circle")); !errors.Is(err, api.Unavailable) {
		t.Errorf("a link to itself: %v", err)
	}
}

// A store whose lock file was deleted stores nothing more: another process may have opened it since.
func TestLockFileIsDeleted(t *testing.T) {
	name := filepath.Join(t.TempDir(), "guard")
	one := openStore(t, name)
	if err := os.Remove(name + ".lock"); err != nil {
		t.Fatal(err)
	}
	refused := func() {
		t.Helper()
		if err := one.Save(t.Context(), of(primary, 8)); !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "guard.lock was deleted") {
			t.Errorf("Save: %v", err)
		}
	}
	refused()
	two := openStore(t, name)
	if err := two.Save(t.Context(), of(primary, 9)); err != nil {
		t.Fatal(err)
	}
	refused()
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	checkStored(t, openStore(t, name), of(primary, 9))
}
