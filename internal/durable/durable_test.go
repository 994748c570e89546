package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/chubbylock/chubby/internal/durable"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	for _, contents := range []string{"a longer text", "short", ""} {
		if err := errors.Join(durable.WriteFile(name, []byte(contents), 0o600), durable.SyncDir(dir)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != contents {
			t.Errorf("wrote %q, read %q, %v", contents, got, err)
		}
	}
	missing := filepath.Join(dir, "missing")
	if err := durable.WriteFile(filepath.Join(missing, "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
	if err := durable.SyncDir(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there was synced: %v", err)
	}
}
