package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// What a reader takes is what was written, also after a signal; one that takes
// nothing holds nobody up then.
func TestOutletWithoutAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread, w := io.Pipe()
		asked := make(chan struct{})
		o := &outlet{w, asked}
		go func() { _, _ = unread.Read(make([]byte, 3)) }()
		if n, err := o.Write([]byte("one")); n != 3 || err != nil {
			t.Errorf("read, it wrote %d bytes: %v", n, err)
		}
		watch := stopwatch()
		time.AfterFunc(time.Hour, func() { close(asked) })
		if _, err := o.Write([]byte("two")); !errors.Is(err, errUnread) || watch() != time.Hour+lastBound {
			t.Errorf("unread for an hour, and then asked to end, it gave up after %v: %v", watch(), err)
		}
		unread.Close()
	})
}

// One signal ends who writes to a reader that does not read.
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
