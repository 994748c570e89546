package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/client"
)

// What config add-cell and remove-cell write is what clients read; other entries and comments stay, and a link stays one.
func TestCellsAreAdded(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("CHUBBY_CELLS", "")
	t.Setenv("CHUBBY_CONFIG", "")
	link, file := filepath.Join(home, ".config", "chubby", "cells.yaml"), filepath.Join(home, "dotfiles.yaml")
	runs := func(want string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		root, _ := newRootCommand()
		root.SetArgs(append([]string{"config"}, args...))
		root.SetOut(&out)
		root.SetErr(io.Discard)
		err := root.ExecuteContext(t.Context())
		if said := out.String(); err != nil {
			said = err.Error()
			if exitCode(err) != exitUsage || !strings.Contains(said, want) {
				t.Errorf("%q: %v, want %q", args, err, want)
			}
		} else if !strings.Contains(said, want) {
			t.Errorf("%q: %q, want %q", args, said, want)
		}
	}
	runs("main is in "+link, "add-cell", "main", "h1,h2", "h3:7000")
	if servers, err := client.Servers(t.Context(), "main"); err != nil || strings.Join(servers, " ") != "h1:7421 h2:7421 h3:7000" {
		t.Errorf("clients find %q, %v", servers, err)
	}
	const before = "# mine\nmain:\n  servers: [a] # two\n  cacert: x\n  cert: y\n  key: z\n# the other\nother: {servers: [b]}\n"
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	is := func(want string) {
		t.Helper()
		text, err := os.ReadFile(file)
		about, _ := os.Lstat(link)
		if mode, _ := os.Stat(file); err != nil || string(text) != want || about.Mode()&os.ModeSymlink == 0 || mode.Mode().Perm() != 0o600 {
			t.Errorf("the file is\n%s\n%v, %v; want\n%s", text, err, about.Mode(), want)
		}
	}
	runs("other is in "+file, "add-cell", "other", "b") // as it is there already
	runs("remove-cell other' removes it", "add-cell", "other", "h9")
	runs("not a cell's name", "add-cell", "a b", "h9")
	runs("not the address of a server", "add-cell", "new", "h9:port")
	runs("needed together", "add-cell", "new", "h9", "--cacert", file)
	runs("no such file", "add-cell", "new", "h9", "--cacert", file, "--token-file", "/nofile")
	runs("--servers", "add-cell", "new", "h9", "--servers", "h9")
	runs("new is not in "+file, "remove-cell", "new")
	is(before)
	runs("new is in "+file, "add-cell", "new", "h9")
	is(before + "new: {servers: [h9]}\n")
	runs("main is no longer in "+file, "remove-cell", "main")
	is("# the other\nother: {servers: [b]}\nnew: {servers: [h9]}\n")
	if err := os.WriteFile(file, []byte("# of all\n- x"), 0o600); err != nil {
		t.Fatal(err)
	}
	runs("malformed", "add-cell", "new", "h9")
	runs("malformed", "remove-cell", "new")
	is("# of all\n- x")
	if left, err := filepath.Glob(file + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// To name /dev/null says that there are no cells; it is not what a cell is added to.
func TestDeviceIsNotReplaced(t *testing.T) {
	t.Setenv("CHUBBY_CONFIG", os.DevNull)
	f, err := readCellsFile()
	if err != nil {
		t.Fatal(err)
	}
	f.path = filepath.Join(t.TempDir(), "replaced") // not the device of this machine
	if err := f.add("a", configuredCell{Servers: []string{"h1"}}); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a cell is added to %s: %v", os.DevNull, err)
	}
	if _, err := os.Stat(f.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was replaced: %v", err)
	}
}

// A file that another changes meanwhile keeps what the other has written, and none is written that could not be read.
func TestCellsFileIsKept(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "cells.yaml")
	t.Setenv("CHUBBY_CONFIG", name)
	const text = "a: &same {servers: [h1]}\nb: *same\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() *cellsFile {
		t.Helper()
		f, err := readCellsFile()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	one, other := read(), read()
	if err := one.remove(one.find("a")); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "another entry refers to this one") {
		t.Errorf("the entry that another is the same as: %v", err)
	}
	if err := other.add("c", configuredCell{Servers: []string{"h2"}}); err != nil {
		t.Fatal(err)
	}
	late := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "another program is changing the file") {
			t.Errorf("one that comes late: %v", err)
		}
	}
	one = read()
	free, err := one.claim()
	if err != nil {
		t.Fatal(err)
	}
	late(read().remove(2)) // b
	if err := free(); err != nil {
		t.Fatal(err)
	}
	if err := read().add("d", configuredCell{Servers: []string{"h3"}}); err != nil {
		t.Fatal(err)
	}
	late(one.add("e", configuredCell{Servers: []string{"h4"}}))
	if got, err := os.ReadFile(name); err != nil || string(got) != text+"c: {servers: [h2]}\nd: {servers: [h3]}\n" {
		t.Errorf("%s, %v", got, err)
	}
}
