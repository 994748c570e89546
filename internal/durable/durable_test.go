package durable_test

import (
	"bytes"
	"errors"
	"io"
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

// Never is more than 4 MiB left to be synced, however large the writes are, and all is written as it is.
func TestSteadyWriter(t *testing.T) {
	const most = 4 << 20
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	for _, size := range []int{1 << 12, 3<<20 + 1, most, len(text)} {
		var out bytes.Buffer
		synced, longest, syncs := 0, 0, 0
		w := durable.NewSteadyWriter(writer(func(p []byte) (int, error) {
			longest = max(longest, out.Len()+len(p)-synced)
			return out.Write(p)
		}), func() error {
			synced = out.Len()
			syncs++
			return nil
		})
		for rest := text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if n, err := w.Write(rest[:min(size, len(rest))]); n != min(size, len(rest)) || err != nil {
				t.Fatal(n, err)
			}
		}
		if longest > most || syncs != len(text)/most || !bytes.Equal(out.Bytes(), text) {
			t.Errorf("%d bytes at a time: %d were left to be synced, %d syncs, %d bytes written", size, longest, syncs, out.Len())
		}
	}
	broken := errors.New("broken")
	w := durable.NewSteadyWriter(io.Discard, func() error { return broken })
	if n, err := w.Write(text); n != most || !errors.Is(err, broken) {
		t.Errorf("a sync that fails: %d, %v", n, err)
	}
	w = durable.NewSteadyWriter(writer(func([]byte) (int, error) { return 7, io.ErrShortWrite }), nil)
	if n, err := w.Write(text); n != 7 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a write that fails: %d, %v", n, err)
	}
}

// writer is a function as an io.Writer.
type writer func(p []byte) (int, error)

func (f writer) Write(p []byte) (int, error) { return f(p) }

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
	if durable.IsLocked(asking) {
		t.Error("a file that nobody has locked is locked")
	}
	asking.Close() // asking takes the lock itself, shared
	asking = open()
	if err := durable.Lock(one); err != nil {
		t.Fatal(err)
	}
	if err := durable.Lock(other); err == nil {
		t.Error("a file was locked twice")
	}
	if !durable.IsLocked(asking) {
		t.Error("a file that is locked is not")
	}
	one.Close()
	if err := durable.Lock(other); err != nil {
		t.Errorf("after the end of the first: %v", err)
	}
}
