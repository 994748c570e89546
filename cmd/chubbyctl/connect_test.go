package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/durable"
)

// In a cell that 'chubbyd dev' runs here, people act under their own name; to any other cell nobody says
// one of himself.
func TestPrincipalInADevCell(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"CHUBBY_CELLS", "CHUBBY_CONFIG", "CHUBBY_CACERT", "CHUBBY_CERT", "CHUBBY_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	own, err := user.Current()
	if err != nil || !isPrincipal(own.Username) {
		t.Fatalf("this user has no name that a list could have: %v, %v", own, err)
	}
	dir := filepath.Join(".chubby", "local")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "dev.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, g *globals, want string) {
		t.Helper()
		if got := g.principal("local"); got != want {
			t.Errorf("%s: it acts as %q, want %q", what, got, want)
		}
	}
	is("no cell runs here", &globals{}, "")
	write(`{"cell":"local","replicas":[{"id":"r1","client":"127.0.0.1:7421"}]}`)
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	is("dev was killed", &globals{}, "")
	if err := durable.Lock(lock); err != nil {
		t.Fatalf("this system locks no files: %v", err)
	}
	is("dev runs", &globals{}, own.Username)
	is("dev runs", &globals{servers: []string{"127.0.0.1:7421"}}, own.Username)
	is("--servers names others", &globals{servers: []string{"127.0.0.1:7421", "h:7421"}}, "")
	is("--as", &globals{as: "ann"}, "ann")
	is("a token", &globals{tokenFile: "token"}, "")
	is("a certificate", &globals{tls: client.TLSFiles{CA: "ca"}}, "")
	t.Setenv("CHUBBY_CELLS", "local=h1:7421")
	is("the cell is configured", &globals{}, "")
	t.Setenv("CHUBBY_CELLS", "")
	write(`{"cell":"local","replicas":[{"client":"127.0.0.1:7421"}],"tls":{"cacert":"a","cert":"b","key":"c"}}`)
	is("dev has certificates", &globals{}, "")
	write(`{`)
	is("dev.json is cut", &globals{}, "")
}

// The default cell is named by a flag, the servers, the environment and the user's file, in that order; else it is the one that is configured, if that is
// the only one.
func TestDefaultCell(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	file := filepath.Join(home, ".config", "chubby", "chubbyctl.yaml")
	is := func(g *globals, name, by string) {
		t.Helper()
		if chosen, err := g.chooseCell(); err != nil || chosen != (chosenCell{name, by}) {
			t.Errorf("the default cell is %+v, %v; want %s by %q", chosen, err, name, by)
		}
	}
	t.Setenv("CHUBBY_CELL", "")
	t.Setenv("CHUBBY_CONFIG", "")
	for cells, want := range map[string]chosenCell{
		"": {"local", ""}, "main=h1:7421,h2:7421": {"main", "being the only one that is configured"}, "main=h1:7421;bar=h2:7421": {"local", ""}, "a b=h1": {"local", ""},
	} {
		t.Setenv("CHUBBY_CELLS", cells)
		is(&globals{}, want.Cell, want.By)
	}
	t.Setenv("CHUBBY_CELLS", "main=h1:7421")
	if path, err := writePreferences(preferences{Cell: "kept"}); err != nil || path != file {
		t.Fatalf("wrote %s: %v", path, err)
	}
	is(&globals{}, "kept", file)
	t.Setenv("CHUBBY_CELL", "named")
	is(&globals{}, "named", "CHUBBY_CELL")
	is(&globals{servers: []string{"h:1"}}, "local", "--servers")
	is(&globals{servers: []string{"h:1"}, cell: "flag"}, "flag", "--cell")

	for _, text := range []string{"cell: a b", "cells: x", "[", "cell: " + strings.Repeat("x", 64<<10)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		is(&globals{}, "named", "CHUBBY_CELL") // the file is not needed
		t.Setenv("CHUBBY_CELL", "")
		if chosen, err := (&globals{}).chooseCell(); exitCode(err) != exitUsage || !strings.Contains(err.Error(), file) {
			t.Errorf("of %.20q the default cell is %+v, %v", text, chosen, err)
		}
		t.Setenv("CHUBBY_CELL", "named")
	}
	t.Setenv("CHUBBY_CELL", "foo=h1:7421")
	if _, err := (&globals{}).chooseCell(); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "CHUBBY_CELLS") {
		t.Errorf("a list of servers is taken for a cell: %v", err)
	}
}

// Whoever reads the file while others write it finds what one of them has written.
func TestPreferencesAreReplaced(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("CHUBBY_CELL", "")
	long := strings.Repeat("x", 200)
	if _, err := writePreferences(preferences{Cell: "short"}); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for _, cell := range []string{"short", long} {
		writers.Go(func() {
			for range 20 {
				if _, err := writePreferences(preferences{Cell: cell}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 200 {
		if p, _, err := readPreferences(); err != nil || p.Cell != "short" && p.Cell != long {
			t.Errorf("read %+v, %v", p, err)
		}
	}
	writers.Wait()
	path, err := preferencesFile()
	if err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("the directory has %v, %v", files, err)
	}
}

// A path that does not begin with /ls/CELL is in the default cell. What may be a slip is refused.
func TestPathsInTheDefaultCell(t *testing.T) {
	g := &globals{cell: "main"}
	for text, want := range map[string]string{
		"/ls/foo/a":   "/ls/foo/a",
		"/ls/local/a": "/ls/main/a",
		"/ls/local":   "/ls/main",
		"a":           "/ls/main/a",
		"a/b/":        "/ls/main/a/b",
		"/acl/ops":    "/ls/main/acl/ops",
		"/":           "/ls/main",
		"日本語":         "/ls/main/日本語",
		"":            "", "/ls": "", "/ls/": "", "ls": "", "ls/main/a": "", "./a": "", "../a": "", "a//b": "", "a\n": "",
	} {
		p, err := g.parsePath(text)
		if got := p.String(); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
	if p, err := g.pathOf(nil); err != nil || p.String() != "/ls/main" {
		t.Errorf("without a path it is %v, %v", p, err)
	}
	if cell, err := g.cellOf(nil); err != nil || cell != "main" {
		t.Errorf("without a cell it is %s, %v", cell, err)
	}
	for text, want := range map[string]string{"local": "local", "/ls/local/a": "main", "/ls/foo/a": "foo"} { // a name is a name
		if cell, err := g.cellOf([]string{text}); err != nil || cell != want {
			t.Errorf("%s is in cell %s, %v; want %s", text, cell, err, want)
		}
	}
	if list, err := listPath(g, "ops"); err != nil || list.String() != "/ls/main/acl/ops" {
		t.Errorf("a list of the default cell is %v, %v", list, err)
	}
}
