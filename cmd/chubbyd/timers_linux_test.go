package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A replica has less exact timers in all of its threads, unless its parent has set them; other commands keep those
// that they were given. Arguments and environment arrive unchanged.
func TestReplicaRelaxesTimers(t *testing.T) {
	for _, c := range []struct {
		args  []string
		given time.Duration
		want  string
	}{
		{[]string{"serve", "--config", "a b"}, 0, "500µs"},
		{[]string{"dev"}, 0, "500µs"},
		{[]string{"serve"}, 70 * time.Microsecond, "70µs"},
		{[]string{"version"}, 0, "50µs"},
		{nil, 0, "50µs"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		out := startWithSlack(t, c.given, exec.CommandContext(ctx, os.Args[0], c.args...))
		want := "[" + strings.Join(c.args, "|") + "] kept " + c.want
		if got := strings.TrimSpace(out); got != want {
			t.Errorf("%q with a slack of %v: %q, want %q", c.args, c.given, got, want)
		}
	}
}

// sayTimers is set for a process that does what chubbyd does first, and says what it has come to.
const sayTimers = "CHUBBYD_TEST_TIMERS"

// sayTimersIfAsked does so, and ends the process, where that is set.
func sayTimersIfAsked() {
	if os.Getenv(sayTimers) == "" {
		return
	}
	relaxTimers(os.Args)
	slack := make(chan time.Duration)
	go func() { slack <- timerSlack() }()
	fmt.Println("["+strings.Join(os.Args[1:], "|")+"]", os.Getenv(sayTimers), <-slack)
	os.Exit(0)
}

// startWithSlack runs a command that inherits a slack, the default if it is 0, and returns what it writes.
func startWithSlack(t *testing.T, given time.Duration, cmd *exec.Cmd) string {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, os.Stderr, append(os.Environ(), sayTimers+"=kept")
	done := make(chan error)
	go func() { // on a thread that ends with it, since its slack was changed
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(max(given, defaultSlack).Nanoseconds()), 0, 0, 0); err != nil {
			done <- err
			return
		}
		done <- cmd.Run()
	}()
	if err := <-done; err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out.String())
	}
	return out.String()
}
