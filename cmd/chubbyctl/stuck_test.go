//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
)

// stuck is the end of a chubbyctl whose CMD has ended, and whose last lines nobody reads.
func stuck() int {
	supervise.Listen()
	g := &globals{output: "text", stderr: term.NewSpeaker(os.Stderr)}
	for range 3 {
		term.Remark(g.stderr, "%s", bytes.Repeat([]byte("x"), 256<<10)) // more than a pipe holds
	}
	fmt.Println("there")
	g.printLast(os.Stderr, errors.New("the last"), false)
	return 1
}

// One signal ends a chubbyctl that only waits for a reader of its last lines.
func TestSignalWhileNobodyReads(t *testing.T) {
	unread, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	defer stderr.Close()
	cmd := exec.Command(os.Args[0], "stuck")
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	again := time.NewTicker(100 * time.Millisecond) // one that comes before the end has begun is for CMD
	defer again.Stop()
	for limit := time.After(20 * time.Second); ; {
		select {
		case <-again.C:
			_ = cmd.Process.Signal(syscall.SIGINT)
			continue
		case <-ended:
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGINT {
				t.Errorf("it ended with %v, want an end by SIGINT", cmd.ProcessState)
			}
		case <-limit:
			_ = cmd.Process.Kill()
			t.Errorf("it still waits for a reader: %v", <-ended)
		}
		return
	}
}

// Many programs read their configuration again for SIGHUP, so --at-least counts after it, unless it has ended CMD.
func TestWhatEndsAtLeast(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, true}, {exitWith(3), true}, {exitWith(exitBySignal + int(syscall.SIGTERM)), true},
		{exitWith(exitBySignal + int(syscall.SIGHUP)), false}, {&supervise.NotRunError{Code: 127}, false},
	} {
		if got := countsAtLeast(c.err); got != c.want {
			t.Errorf("after %v it lingers: %t, want %t", c.err, got, c.want)
		}
	}
	for _, s := range endingSignals() {
		if s == syscall.SIGHUP {
			t.Error("SIGHUP counts as a wish to end")
		}
	}
	if len(endingSignals()) != len(supervise.Interrupts())-1 {
		t.Errorf("of %v, %v count as a wish to end", supervise.Interrupts(), endingSignals())
	}
}

// The program that writes the value may never end. One signal ends chubbyctl while it reads, from a pipe or from a
// terminal.
func TestSignalWhileReading(t *testing.T) {
	const pipeful = 64 << 10
	cmd := exec.Command(os.Args[0], "put", "/ls/local/x", "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(bytes.Repeat([]byte("x"), min(3*pipeful, api.MaxContents))); err != nil { // until most of it is read
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	endsInTime(t, cmd)
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() && status.ExitStatus() != 128+int(syscall.SIGTERM) {
		t.Errorf("it ended with %v, want an end by SIGTERM", cmd.ProcessState)
	}
}

// endsInTime waits for a command's end, and fails the test if it does not come.
func endsInTime(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		<-ended
		t.Fatalf("%v still runs", cmd.Args)
	}
}
