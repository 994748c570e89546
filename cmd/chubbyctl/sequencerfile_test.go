package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/internal/tenure"
)

// The file is there while the lock is held, and is removed then, unless another has written it meanwhile.
func TestSequencerFile(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(file string) error
		want   string // what is there afterwards
	}{
		{"ours", func(string) error { return nil }, ""},
		{"another's", func(file string) error { return os.WriteFile(file, []byte("another\n"), 0o600) }, "another\n"},
		{"gone already", os.Remove, ""},
	} {
		for _, lost := range []bool{true, false} {
			var told bytes.Buffer
			o := &workOptions{globals: &globals{output: "text"}, sequencerFile: filepath.Join(t.TempDir(), "file"), err: &told}
			held, lose := context.WithCancel(t.Context())
			forget, err := o.keepSequencer(held, "ours")
			if err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(o.sequencerFile); err != nil || string(text) != "ours\n" {
				t.Errorf("%s: %q, %v", c.name, text, err)
			}
			if err := c.change(o.sequencerFile); err != nil {
				t.Fatal(err)
			}
			if lost {
				lose()
			}
			forget()
			lose()
			text, err := os.ReadFile(o.sequencerFile)
			if string(text) != c.want || os.IsNotExist(err) != (c.want == "") || told.Len() > 0 {
				t.Errorf("%s, lost %t: left %q, %v; told %q", c.name, lost, text, err, told.String())
			}
		}
	}
}

// A file that is not a regular one is never replaced, and a missing directory is reported before the wait for the lock.
func TestSequencerFileFaults(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		os.DevNull: "no ordinary file", dir: "no ordinary file", link: "no ordinary file", filepath.Join(dir, "no", "file"): "no directory",
	} {
		_, err := execute(t, nil, "acquire", "/ls/local/a", "--sequencer-file", name, "--", "true")
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: exit code %d (%v), want %d with %q", name, exitCode(err), err, exitUsage, want)
		}
	}
	o := &workOptions{globals: &globals{output: "text"}, sequencerFile: filepath.Join(dir, "no", "file"), err: io.Discard}
	if _, err := o.keepSequencer(t.Context(), "x"); err == nil {
		t.Error("a file that cannot be written is no error")
	}
}

// A file that has something else than a sequencer is neither replaced nor removed.
func TestSequencerFileIsNobodyElses(t *testing.T) {
	for text, taken := range map[string]bool{
		"": true,
		"chubby1:x:42:8d7d12148ef07c5c275c7061888f1e24:466140f4:/ls/local/h\n": true,
		"listen: 8080\n":            false,
		strings.Repeat("x", 1<<20):  false,
		"chubby1:x:42:nonsense:1:/": false,
	} {
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := tenure.CheckSequencerFile(name); (err == nil) != taken {
			t.Errorf("a file of %.20q: %v, taken is to be %t", text, err, taken)
		}
		// As it may have become while the lock was waited for.
		o := &workOptions{globals: &globals{output: "text"}, sequencerFile: name, err: io.Discard}
		if _, err := o.keepSequencer(t.Context(), "ours"); (err == nil) != taken {
			t.Errorf("a file of %.20q, when the lock is held: %v, taken is to be %t", text, err, taken)
		}
		if left, err := os.ReadFile(name); !taken && (err != nil || string(left) != text) {
			t.Errorf("a file of %.20q holds %.20q (%v) when the lock was held", text, left, err)
		}
	}
}

// Holders who share a lock have the same sequencer. The file of one is not used by another, which would remove it while the first
// still holds the lock.
func TestSequencerFileIsNotShared(t *testing.T) {
	const shared = "chubby1:x:42:8d7d12148ef07c5c275c7061888f1e24:466140f4:/ls/local/h"
	name := filepath.Join(t.TempDir(), "file")
	keep := func() (func(), error) {
		o := &workOptions{globals: &globals{output: "text"}, sequencerFile: name, err: io.Discard}
		return o.keepSequencer(t.Context(), shared)
	}
	forget, err := keep()
	if err != nil {
		t.Fatal(err)
	}
	second, err := keep()
	if exitCode(err) != exitUsage || !strings.Contains(err.Error(), "shares the lock") {
		t.Errorf("a second who keeps it there: %v", err)
	}
	if err == nil {
		second()
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != shared+"\n" {
		t.Errorf("the first has the lock, and the file has %q, %v", text, err)
	}
	forget()
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// A file that a killed chubbyctl has left belongs to no other, although the lock, which others share, still has the same sequencer:
// the next chubbyctl takes it over.
func TestSequencerFileIsTakenOver(t *testing.T) {
	const shared = "chubby1:x:42:8d7d12148ef07c5c275c7061888f1e24:466140f4:/ls/local/h"
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(shared+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &workOptions{globals: &globals{output: "text"}, sequencerFile: name, err: io.Discard}
	for range 2 {
		forget, err := o.keepSequencer(t.Context(), shared)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(name); err != nil || string(text) != shared+"\n" {
			t.Errorf("it has %q, %v", text, err)
		}
		forget()
		if _, err := os.Stat(name); !os.IsNotExist(err) {
			t.Errorf("it is still there: %v", err)
		}
	}
}
