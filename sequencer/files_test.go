package sequencer_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// A file that the system does not let be read, locked or replaced is Unavailable, not damaged: nobody should delete it.
func TestFileThatTheSystemRefuses(t *testing.T) {
	for name, prepare := range map[string]func(file string) error{
		"a directory in its place":           func(file string) error { return os.Mkdir(file, 0o700) },
		"a directory in place of its lock":   func(file string) error { return os.Mkdir(file+".lock", 0o700) },
		"a link to itself":                   func(file string) error { return os.Symlink(file, file) },
		"a link into a missing directory":    func(file string) error { return os.Symlink(file+"-missing/guard", file) },
		"a file in place of their directory": func(file string) error { return os.WriteFile(filepath.Dir(file)+"/file", nil, 0o600) },
	} {
		file := filepath.Join(t.TempDir(), "guard")
		if err := prepare(file); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "a file") {
			file = filepath.Join(filepath.Dir(file), "file", "guard")
		}
		if store, err := sequencer.OpenFileStore(file); store != nil || !errors.Is(err, api.Unavailable) {
			t.Errorf("%s: %v, want Unavailable", name, err)
		}
	}
}

// A save that could not replace the file has stored nothing, and says so; a closed store neither saves nor loads.
func TestFileThatCannotBeReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "guard")
	store := openStore(t, file)
	if err := os.MkdirAll(filepath.Join(file, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), of(primary, 41)); !errors.Is(err, api.Unavailable) {
		t.Errorf("Save: %v, want Unavailable", err)
	}
	checkStored(t, store)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if seen, err := store.Load(t.Context()); !errors.Is(err, api.Unavailable) || seen != nil {
		t.Errorf("Load of a closed store: %v, %v; want Unavailable", seen, err)
	}
	if err := store.Save(t.Context(), of(primary, 41)); !errors.Is(err, api.Unavailable) {
		t.Errorf("Save into a closed store: %v, want Unavailable", err)
	}
}

// On a full disk a save leaves the file as it is. Where there is no /dev/full, it cannot be made.
func TestFullDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "guard")
	store := openStore(t, file)
	if err := store.Save(t.Context(), of(primary, 41)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", file+".new"); err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), of(primary, 57)); !errors.Is(err, api.Unavailable) {
		t.Errorf("Save: %v, want Unavailable", err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file + ".new"); err != nil {
		t.Fatal(err)
	}
	checkStored(t, openStore(t, file), of(primary, 41))
}

// Equal stores have equal files, and the error for a damaged one names the line.
func TestFileIsInOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "guard")
	store := openStore(t, file)
	for _, name := range strings.Split("gcfaedbh", "") {
		if err := store.Save(t.Context(), of(api.MustParsePath("/ls/foo/"+name), 41)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	if len(lines) != 11 || !slices.IsSorted(lines[1:9]) {
		t.Errorf("the lines have no order:\n%s", text)
	}
	for damaged, says := range map[string]string{
		strings.Join(slices.Concat(lines[:3], []string{"x\n"}, lines[3:]), ""): "line 4",
		strings.Join(slices.Concat(lines[:5], lines[1:]), ""):                  "line 6",
		strings.Join(lines[1:], ""):                                            "does not begin",
	} {
		if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sequencer.OpenFileStore(file); !errors.Is(err, api.Corrupt) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want Corrupt with %q", err, says)
		}
	}
}

// Sequencers are written in one way by every version: what RFC 3986 calls unreserved stays as it is.
func TestUnreservedCharactersStay(t *testing.T) {
	path := "/ls/foo/az/AZ/09/a-b.c_d~e"
	text := of(api.MustParsePath(path), 41).String()
	if !strings.HasSuffix(text, ":"+path) {
		t.Errorf("the text is %q, want it to end with %q", text, path)
	}
	for n, want := range map[int]bool{sequencer.MaxText: false, sequencer.MaxText + 1: true} {
		if _, err := sequencer.Parse(strings.Repeat("x", n)); err == nil || strings.Contains(err.Error(), "bytes long") != want {
			t.Errorf("a text of %d bytes: %v", n, err)
		}
	}
}
