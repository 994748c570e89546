package names

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
)

func script(t *testing.T, text string) Hook {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	noErr(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700))
	return Hook(path)
}

// A hook reads the replicas, and has no secret of the daemon in its environment.
func TestHook(t *testing.T) {
	t.Setenv("CHUBBYD_TOKEN", "secret")
	t.Setenv("HOOK_OWN", "kept")
	into := filepath.Join(t.TempDir(), "out")
	p := cell.Publication{Cell: "main", Replicas: []cell.Member{{ID: "r1", Client: "h1:1"}, {ID: "r2", Client: "h2:2"}}}
	h := script(t, fmt.Sprintf("cat >%s; env >>%s; echo quiet", into, into))
	noErr(t, h.Publish(t.Context(), p))
	text, err := os.ReadFile(into)
	noErr(t, err)
	const want = `{"cell":"main","replicas":[{"id":"r1","client":"h1:1"},{"id":"r2","client":"h2:2"}],"left":[]}` + "\n"
	if got := string(text); !strings.HasPrefix(got, want) || strings.Contains(got, "secret") || !strings.Contains(got, "HOOK_OWN=kept") {
		t.Errorf("it was given %s", got)
	}
}

func TestHookFails(t *testing.T) {
	for text, want := range map[string]string{
		"echo the server says no >&2; exit 3": "exit status 3: the server says no",
		"exit 1":                              "exit status 1",
		"i=0; while [ $i -lt 5000 ]; do echo $i; i=$((i+1)); done; exit 1": "...",
	} {
		err := script(t, text).Publish(t.Context(), cell.Publication{})
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 2*maxHookOutput {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := Hook("/none/such").Publish(t.Context(), cell.Publication{}); err == nil {
		t.Error("a hook that is not there succeeds")
	}
}

// A hook that does not end is killed, with what it has started.
func TestHookIsKilled(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	noErr(t, syscall.Mkfifo(pipe, 0o600))
	h := script(t, fmt.Sprintf("exec 3>%s; sleep 1000 & echo started >&3; wait", pipe))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Publish(ctx, cell.Publication{}) }()
	f, err := os.Open(pipe) // when the hook does
	noErr(t, err)
	defer f.Close()
	noErr(t, f.SetReadDeadline(time.Now().Add(30*time.Second)))
	lines := bufio.NewReader(f)
	if text, err := lines.ReadString('\n'); err != nil || text != "started\n" {
		t.Fatal(text, err)
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Error(err)
	}
	if text, err := lines.ReadString('\n'); err != io.EOF { // when nobody has it open for writing any more
		t.Errorf("%q, %v", text, err)
	}
}

// noErr ends the test if there is an error.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
