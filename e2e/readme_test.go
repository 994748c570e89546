package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

// TestREADMEProgram builds and runs the first Go of the README, to the letter, by its own commands in an empty directory, against
// a cell: it is a whole program of few lines, which works under the lock, and leaves the lock free and no session.
func TestREADMEProgram(t *testing.T) {
	besideOthers(t)
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("the README has no Go")
	}
	program := string(block[1])
	_, body, _ := strings.Cut(program, "func main() {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	if lines := strings.Count(body, "\n") + 1; lines >= 10 {
		t.Errorf("the program has %d lines in main; want less than 10", lines)
	}
	commands := regexp.MustCompile("`(go mod init [^`]*) && go run \\.`").FindSubmatch(readme)
	if commands == nil {
		t.Fatal("the README has no commands for its program")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "sh", "-c", string(commands[1])+" && go build -o program .")
	build.Dir = dir
	build.Env = append(os.Environ(), moduleProxy(t)...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}

	w := start(t)
	c := w.client(client.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), patience(time.Minute))
	defer cancel()
	before, err := c.Cell().Sessions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(filepath.Join(dir, "program"))
	cmd.Env = append(cmd.Env, "CHUBBY_CELLS=local="+w.servers())
	p := launch(t, cmd, (*exec.Cmd).Start)
	if code := p.wait(20 * time.Second); code != 0 || !regexp.MustCompile(`(?s)working under token \d+\n.*ended: <nil>\n`).MatchString(p.stderr.String()) {
		t.Errorf("exit %d\n%s%s", code, &p.stdout, &p.stderr)
	}
	if x, err := c.Cell().Explain(ctx, "/ls/local/backup"); err != nil || x.Lock.Generation == 0 || len(x.Lock.Holders) != 0 {
		t.Errorf("after the program: %+v, %v; want a lock that was held, and is free", x.Lock, err)
	}
	if after, err := c.Cell().Sessions(ctx); err != nil || len(after) != len(before) {
		t.Errorf("%d sessions, and %d before the program: %v", len(after), len(before), err)
	}
	l, err := c.Acquire(ctx, "/ls/local/backup")
	if err != nil {
		t.Fatal(err)
	}
	p = launch(t, func() *exec.Cmd {
		cmd := command(filepath.Join(dir, "program"))
		cmd.Env = append(cmd.Env, "CHUBBY_CELLS=local="+w.servers())
		return cmd
	}(), (*exec.Cmd).Start)
	for { // until it waits
		x, err := c.Cell().Explain(ctx, "/ls/local/backup")
		if err != nil {
			t.Fatal(err)
		}
		if len(x.Lock.Waiters) == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !p.running() || strings.Contains(p.stderr.String(), "working") {
		t.Errorf("another holds the lock, and the program has not waited:\n%s", &p.stderr)
	}
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
	if code := p.wait(20 * time.Second); code != 0 {
		t.Errorf("exit %d\n%s%s", code, &p.stdout, &p.stderr)
	}
}
