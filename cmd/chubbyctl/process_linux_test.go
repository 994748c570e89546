package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// One signal ends a chubbyctl that writes to a reader that does not read.
func TestSignalWhileNobodyReadsOutput(t *testing.T) {
	unread, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	if _, err := unix.FcntlInt(out.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil { // less than is written
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "completion", "bash")
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if _, err := unread.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	endsInTime(t, cmd)
	if got := cmd.ProcessState.ExitCode(); got != exitBySignal+int(syscall.SIGINT) {
		t.Errorf("it ended with %d, want 130", got)
	}
}

// A chubbyctl whose reader has gone ends by itself, in order, without a word, and with the exit code of an end by SIGPIPE.
func TestReaderThatHasGone(t *testing.T) {
	for _, line := range []string{"completion bash", "help", "version -o json"} {
		unread, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		unread.Close()
		var said bytes.Buffer
		cmd := exec.Command(os.Args[0], strings.Fields(line)...)
		cmd.Stdout, cmd.Stderr, cmd.Env = out, &said, quickly()
		_ = cmd.Run() // its exit code is looked at
		out.Close()
		if got := cmd.ProcessState.ExitCode(); got != exitBySignal+int(syscall.SIGPIPE) || said.Len() > 0 {
			t.Errorf("chubbyctl %s: it ended with %v, want 141, and said %q", line, cmd.ProcessState, said.String())
		}
	}
}
