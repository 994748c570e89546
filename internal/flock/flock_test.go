package flock_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chubbylock/chubby/internal/flock"
)

func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	open := func() *os.File {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	one, other, asking := open(), open(), open()
	if flock.IsLocked(asking) {
		t.Error("a file that nobody has locked is locked")
	}
	asking.Close() // asking takes the lock itself, shared
	asking = open()
	if err := flock.Lock(one); err != nil {
		t.Fatal(err)
	}
	if err := flock.Lock(other); err == nil {
		t.Error("a file was locked twice")
	}
	if !flock.IsLocked(asking) {
		t.Error("a file that is locked is not")
	}
	one.Close()
	if err := flock.Lock(other); err != nil {
		t.Errorf("after the end of the first: %v", err)
	}
}
