package processes

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

const (
	haltLimit = time.Minute      // until a process that was sent SIGSTOP is stopped, on a busy machine
	haltPause = time.Millisecond // between two looks
)

// Halt stops a process by SIGSTOP, and returns when none of its threads runs. A signal
// alone is sent before that: the thread that takes it needs a processor first, and while
// it waits for one, 30 ms on a busy machine, the others run on and answer calls. On a
// system without /proc it returns when the signal has been sent.
func Halt(t testing.TB, pid int) {
	t.Helper()
	if err := signal(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
}

// sendTo sends a signal to a process. After SIGSTOP it returns when the process is stopped.
func sendTo(p *os.Process, s os.Signal) error {
	if err := p.Signal(s); err != nil || s != syscall.SIGSTOP {
		return err
	}
	return awaitHalt(p.Pid)
}

func awaitHalt(pid int) error {
	looks := 0 // that found all stopped; the second finds the threads that were started during the first
	for end := time.Now().Add(haltLimit); looks < 2; {
		running, err := runningThread(pid)
		switch {
		case err != nil:
			return err
		case running == "":
			looks++
			continue
		case time.Now().After(end):
			return fmt.Errorf("after %v, %s", haltLimit, running)
		}
		looks = 0
		<-time.After(haltPause)
	}
	return nil
}

// runningThread names a thread of a process that is not stopped, with its state, if there is
// one.
func runningThread(pid int) (string, error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat("/proc/self/task"); err == nil {
			return "", os.ErrProcessDone
		}
		return "", nil // a system without it
	}
	if err != nil {
		return "", err
	}
	ended := 0
	for _, thread := range threads {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, thread.Name()))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return "", err
		}
		_, after, _ := strings.Cut(string(stat), ") ") // its name may hold anything
		switch state, _, _ := strings.Cut(after, " "); state {
		case "T":
		case "Z", "X":
			ended++ // nobody has waited for it yet
		default:
			return fmt.Sprintf("thread %s is %s", thread.Name(), state), nil
		}
	}
	if ended > 0 && ended == len(threads) {
		return "", os.ErrProcessDone
	}
	return "", nil
}
