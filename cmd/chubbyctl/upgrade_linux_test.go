package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/tenure"
)

// upgraded replaces the file of this program, as an upgrade does during the wait for a lock, and then runs a command.
func upgraded() int {
	name, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Remove(name), os.WriteFile(name, []byte("#!/bin/sh\nexit 1\n"), 0o700))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	o := &workOptions{
		globals: &globals{output: "text"}, path: api.MustParsePath("/ls/foo/a"), workCommand: workCommand{[]string{"sh", "-c", "exit 5"}, "/bin/sh", make(chan os.Signal, 8)},
		terms: tenure.Terms{KillAfter: 100 * time.Millisecond}, out: io.Discard, err: os.Stderr,
	}
	session := &liveSession{}
	session.left.Store(int64(time.Minute))
	lock := fakeLock{ctx: context.Background(), exclusive: func() time.Duration { return time.Minute }}
	err = o.supervise(tenure.Command{Lock: lock, Session: session, Env: os.Environ()}, request{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return exitCode(err)
}

func TestProgramReplacedWhileItWaits(t *testing.T) {
	running, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "chubbyctl")
	if err := os.WriteFile(name, running, 0o700); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(name, "upgraded").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Errorf("%v: %s; want 5, the command's own", err, said)
	}
}
