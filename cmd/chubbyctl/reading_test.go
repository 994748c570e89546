//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

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
