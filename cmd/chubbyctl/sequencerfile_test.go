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

const someSequencer = "chubby1:x:42:8d7d12148ef07c5c275c7061888f1e24:466140f4:/ls/local/h"

func keep(ctx context.Context, file, sequencer string, told io.Writer) (forget func(), err error) {
	return (&workOptions{globals: &globals{output: "text"}, sequencerFile: file, err: told}).keepSequencer(ctx, sequencer)
}

// mustHold fails the test unless the file holds a text, or, if that is empty, is not there.
func mustHold(t *testing.T, what, file, want string) {
	t.Helper()
	if text, err := os.ReadFile(file); string(text) != want || os.IsNotExist(err) != (want == "") {
		t.Errorf("%s: the file holds %.20q (%v), want %.20q", what, text, err, want)
	}
}

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
			file := filepath.Join(t.TempDir(), "file")
			held, lose := context.WithCancel(t.Context())
			forget, err := keep(held, file, "ours", &told)
			if err != nil {
				t.Fatal(err)
			}
			mustHold(t, c.name, file, "ours\n")
			if err := c.change(file); err != nil {
				t.Fatal(err)
			}
			if lost {
				lose()
			}
			forget()
			lose()
			if mustHold(t, c.name, file, c.want); told.Len() > 0 {
				t.Errorf("%s, lost %t: told %q", c.name, lost, told.String())
			}
		}
	}
}

// A file that is not a regular one is never replaced, and a missing directory is reported before the wait for the lock.
func TestSequencerFileFaults(t *testing.T) {
	dir := t.TempDir()
	link, missing := filepath.Join(dir, "link"), filepath.Join(dir, "no", "file")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		os.DevNull: "no ordinary file", dir: "no ordinary file", link: "no ordinary file", missing: "no directory",
	} {
		_, err := execute(t, nil, "acquire", "/ls/local/a", "--sequencer-file", name, "--", "true")
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: exit code %d (%v), want %d with %q", name, exitCode(err), err, exitUsage, want)
		}
	}
	if _, err := keep(t.Context(), missing, "x", io.Discard); err == nil {
		t.Error("a file that cannot be written is no error")
	}
}

// A file that has something else than a sequencer is neither replaced nor removed, also if it became so while the lock was waited for.
func TestSequencerFileIsNobodyElses(t *testing.T) {
	for text, taken := range map[string]bool{
		"": true, someSequencer + "\n": true, "listen: 8080\n": false, strings.Repeat("x", 1<<20): false, "chubby1:x:42:nonsense:1:/": false,
	} {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := tenure.CheckSequencerFile(file); (err == nil) != taken {
			t.Errorf("a file of %.20q: %v, taken is to be %t", text, err, taken)
		}
		if _, err := keep(t.Context(), file, "ours", io.Discard); (err == nil) != taken {
			t.Errorf("a file of %.20q, when the lock is held: %v, taken is to be %t", text, err, taken)
		}
		if !taken {
			mustHold(t, "when the lock was held", file, text)
		}
	}
}

// Holders who share a lock have the same sequencer. The file of one is not used by another, which would remove it while the first still
// holds the lock. But one that a killed chubbyctl has left belongs to nobody: the next takes it over.
func TestSequencerFileIsNotShared(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(someSequencer+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		forget, err := keep(t.Context(), file, someSequencer, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := keep(t.Context(), file, someSequencer, io.Discard); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "shares the lock") {
			t.Errorf("a second who keeps it there: %v", err)
			if err == nil {
				second()
			}
		}
		mustHold(t, "while the first has the lock", file, someSequencer+"\n")
		forget()
		mustHold(t, "when nobody has it", file, "")
	}
}
