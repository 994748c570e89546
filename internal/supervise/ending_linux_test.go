package supervise

import (
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unheard is a guardian that ends, as one that is killed does, after it has started the command and before
// it has reported that.
func unheard(args []string) error {
	for _, pipe := range args[:2] {
		fd, err := strconv.Atoi(pipe)
		if err != nil {
			return err
		}
		syscall.CloseOnExec(fd)
	}
	_, err := os.StartProcess(args[3], args[4:], &os.ProcAttr{})
	return err
}

// Nothing of the command is left, also if the guardian ends before it has reported the start.
func TestGuardianEndsUnheard(t *testing.T) {
	c := shell("exec sleep 60")
	c.Guardian = []string{os.Args[0], "unheard"}
	before := family(0) // of other tests
	if _, err := Start(c, make(chan os.Signal, 8)); err == nil {
		t.Error("it was started, though nobody has said so")
	}
	left := slices.DeleteFunc(family(0), func(pid int) bool { return slices.Contains(before, pid) })
	for _, pid := range left {
		t.Errorf("process %d is left behind", pid)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// chubbyctl does not wait for a guardian that has reported that everything is gone, and does not end: it may
// be stopped.
func TestGuardianDoesNotEnd(t *testing.T) {
	c := shell("true")
	c.Guardian = []string{"/bin/sh", "-c", `printf '{"started":%d}{"ended":{"code":7}}{"gone":true}' $$ >"/proc/self/fd/$2"; kill -STOP $$`, "guardian"}
	p := start(t, c)
	defer func() { _ = p.guardian.Process.Kill() }() // or the test would not end
	select {
	case <-p.Done():
		if got, err := p.Wait(); got != (Result{Code: 7}) || err != nil {
			t.Errorf("result %+v, %v; want 7", got, err)
		}
	case <-time.After(bound):
		t.Error("it is waited for")
	}
}
