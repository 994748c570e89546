package main

import (
	"os"
	"os/user"
	"path/filepath"
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
