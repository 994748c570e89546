package promsd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A reader never sees a part of a file, however often it is replaced.
func TestReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.json")
	version := func(n int) []byte {
		line := fmt.Sprintf("%06d\n", n)
		return []byte(strings.Repeat(line, 10_000))
	}
	if _, err := replaceFile(path, version(0)); err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	seen := make(chan error, 1)
	go func() {
		for !done.Load() {
			text, err := os.ReadFile(path)
			if err == nil && (len(text) != 70_000 || string(text[:7]) != string(text[len(text)-7:])) {
				err = fmt.Errorf("%d bytes, from %q to %q", len(text), text[:min(6, len(text))], text[max(0, len(text)-7):])
			}
			if err != nil {
				seen <- err
				return
			}
		}
		seen <- nil
	}()
	for n := range 200 {
		if written, err := replaceFile(path, version(n)); err != nil || written != (n > 0) {
			t.Fatal(written, err)
		}
	}
	done.Store(true)
	if err := <-seen; err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v; want one file", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != newFileMode {
		t.Errorf("%v, %v; others must be able to read it", info.Mode(), err)
	}
}
