package sequencer

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// A process that crashes between the rename and the sync of the directory
// leaves a file that a later crash of the machine may undo. A store that opens
// the file must make it durable before requests are let in by its contents.
func TestWhatIsReadIsDurable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "guard")
	crash := errors.New("the process ends here")
	durable := true // whether the file's contents survive a crash of the machine
	store, err := openFileStore(name, func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	store.sync = func(string) error {
		durable = false
		return crash
	}
	s := Sequencer{Cell: "00112233445566778899aabbccddeeff", Path: api.MustParsePath("/ls/foo/primary"), Mode: api.Exclusive, Generation: 57}
	if err := store.Save(t.Context(), s); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	_ = store.Close()
	if _, err := openFileStore(name, func(string) error { return crash }); !errors.Is(err, api.Unavailable) {
		t.Errorf("opened with a directory that cannot be synced: %v", err)
	}
	store, err = openFileStore(name, func(directory string) error {
		durable = directory == filepath.Dir(name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if seen, err := store.Load(t.Context()); err != nil || len(seen) != 1 || seen[0] != s || !durable {
		t.Errorf("%v (%v) is used; durable: %t", seen, err, durable)
	}
}
