package disk

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/cell/internal/identity"
)

// No replica opens a directory whose replica was contradicted, whatever has become of the note; who only looks does.
func TestContradictedDirectoryIsRefused(t *testing.T) {
	for name, spoil := range map[string]string{"whole": "", "torn": "{\"index\":", "empty": " ", "of something else": "{}"} {
		dir := t.TempDir()
		opts := Options{Cell: "foo", ID: "r1", Logger: slog.New(slog.DiscardHandler), Fatal: func(error) {}, Silence: func() {}, Bootstrap: true}
		s, err := Open(dir, BoltStore, opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.NoteContradiction(Contradiction{Index: 7, By: []string{"r2", "r3"}, Why: "the reason"}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if path := filepath.Join(dir, ContradictionName); spoil != "" {
			if err := os.WriteFile(path, []byte(spoil), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if c, err := ReadContradiction(dir); err != nil || c.Index != 7 || len(c.By) != 2 {
			t.Errorf("%+v, %v", c, err)
		}
		_, err = Open(dir, BoltStore, opts)
		if !errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), ContradictionName) || spoil == "" && !strings.Contains(err.Error(), "the reason") {
			t.Errorf("%s: %v", name, err)
		}
		opts.Inspect = true
		if s, err = Open(dir, BoltStore, opts); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
