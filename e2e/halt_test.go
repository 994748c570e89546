package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// halt stops a process, and returns when none of its threads runs. kill(2) returns before: the
// thread that takes the signal needs a processor first, and while it waits for one, 30 ms on a
// busy machine, the others run on and answer calls.
func halt(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	looks := 0 // that found all stopped; the second finds the threads that were started during the first
	for end := time.Now().Add(patience(10 * time.Second)); looks < 2; time.Sleep(time.Millisecond) {
		running, err := unhalted(pid)
		if err != nil {
			t.Fatal(err)
		}
		if running == "" {
			looks++
			continue
		}
		looks = 0
		if time.Now().After(end) {
			t.Fatalf("process %d is not stopped: %s", pid, running)
		}
	}
}

// unhalted names a thread of a process that is not stopped, with its state, if there is one.
func unhalted(pid int) (string, error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return "", err
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, thread.Name()))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return "", err
		}
		_, after, _ := strings.Cut(string(stat), ") ") // its name may hold anything
		if state, _, _ := strings.Cut(after, " "); state != "T" {
			return fmt.Sprintf("thread %s is %s", thread.Name(), state), nil
		}
	}
	return "", nil
}
