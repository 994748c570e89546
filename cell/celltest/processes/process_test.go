package processes_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/chubbylock/chubby/cell/celltest/processes"
)

// childTask makes the test's binary a child of TestRun.
const childTask = "CHUBBY_PROCESSES_TEST_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childTask); text != "" {
		fmt.Fprintln(os.Stderr, text) // first, as the test may end it when it has the other
		fmt.Println("taken: " + text)
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// failures stands for a test that may fail.
type failures struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (f *failures) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *failures) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}
func (f *failures) Failed() bool { return len(f.errors) > 0 }

// A child ends with its input or by a signal, with the test at the latest; what it prints is
// given on or kept; and a data race in it fails the test.
func TestRun(t *testing.T) {
	test := &failures{TB: t}
	run := func(text string) (p *processes.Process, said chan string) {
		said = make(chan string, 10)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childTask+"="+text)
		return processes.Run(test, cmd, func(line string) bool {
			rest, taken := strings.CutPrefix(line, "taken: ")
			if taken {
				said <- rest
			}
			return taken
		}), said
	}
	asked, said := run("one")
	if text := <-said; text != "one" {
		t.Errorf("it printed %q", text)
	}
	asked.CloseInput()
	if code := asked.ExitCode(); code != 3 || asked.Output() != "one\n" {
		t.Errorf("exit code %d, and it printed %q", code, asked.Output())
	}

	stopped, said := run("two")
	<-said
	stopped.Signal(syscall.SIGSTOP)
	stopped.End(syscall.SIGTERM)
	if code := stopped.ExitCode(); code != -1 && code != 3 { // whichever was first
		t.Errorf("exit code %d", code)
	}

	racing, said := run("WARNING: DATA RACE")
	<-said
	for _, cleanup := range test.cleanups {
		cleanup()
	}
	select {
	case <-racing.Done():
	default:
		t.Error("it goes on after the end of the test")
	}
	if len(test.errors) != 1 || !strings.Contains(test.errors[0], "data race") {
		t.Errorf("the test has failed by %q", test.errors)
	}
}
