//go:build linux

package processes_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
)

// fatal keeps what a test would have ended with.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Fatalf(format string, args ...any) { f.said = fmt.Sprintf(format, args...) }

// A process that has ended is not waited for until it stops, also if nobody has waited for its end yet.
func TestHaltOfAProcessThatHasEnded(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	for end := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(stat), ") Z ") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it goes on: %s", stat)
		}
	}
	began, f := time.Now(), &fatal{TB: t}
	processes.Halt(f, cmd.Process.Pid)
	if took := time.Since(began); took > 10*time.Second || !strings.Contains(f.said, os.ErrProcessDone.Error()) {
		t.Errorf("after %v: %q", took, f.said)
	}
}
