package supervise

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A guardian that is stopped notices neither orders nor the time. chubbyctl ends it then, with the command and
// what it has started, at the deadline, or when it has asked the command to end.
func TestStoppedGuardian(t *testing.T) {
	for name, stop := range map[string]bool{"the time ends": false, "asked to end": true} {
		t.Run(name, func(t *testing.T) {
			f := newFIFO(t)
			c := shell(stubborn, f.name)
			c.KillAfter, c.Margin = 200*time.Millisecond, 200*time.Millisecond
			var ours allowance
			c.Allowed = ours.left
			p := start(t, c)
			f.line(t)
			if err := p.guardian.Process.Signal(unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if stop {
				p.Stop()
			} else {
				ours.endsIn(time.Second)
			}
			if got := wait(t, p); got != (Result{Code: 137, Cut: true}) {
				t.Errorf("result %+v, want cut by SIGKILL", got)
			}
			f.ended(t)
		})
	}
}

// The end of a chubbyctl that is killed continues its guardian, if that is stopped. The kernel alone would not:
// the guardian's new parent is of the same session here.
func TestStoppedGuardianOfAKilledChubbyctl(t *testing.T) {
	if err := adopt(); err != nil {
		t.Fatal(err)
	}
	f := newFIFO(t)
	cmd := startSupervisor(t, `exec 5>"$1"; echo $PPID >&5; while :; do sleep 0.01; done`, f, plenty)
	guardian := number(t, f)
	if err := unix.Kill(guardian, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(guardian, unix.SIGKILL) })
	waitForState(t, guardian, 'T')
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.ended(t)
}

// A signal to every process of a service reaches the command through chubbyctl and, as here, directly, but not
// through the guardian once more.
func TestGuardianPassesNothingOn(t *testing.T) {
	f := newFIFO(t)
	p := start(t, shell(`exec 5>"$1"; trap 'echo term >&5' TERM; trap 'exit 5' USR2; echo ready >&5; while :; do sleep 0.01; done`, f.name))
	f.line(t)
	if err := p.guardian.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.guardian.Process.Signal(unix.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	p.Signal(unix.SIGTERM)
	if got := f.line(t); got != "term" {
		t.Errorf("the command got %s", got)
	}
	p.Signal(unix.SIGUSR2)
	if got := wait(t, p); got.Code != 5 {
		t.Errorf("result %+v, want 5", got)
	}
	if rest, err := io.ReadAll(f.lines); err != nil || len(rest) > 0 {
		t.Errorf("the command got %q besides (%v)", rest, err)
	}
}

// A program that throttles the command by stopping it fills the pipe of reports while chubbyctl is stopped. The
// guardian keeps the deadline nevertheless, and chubbyctl learns how the command ended.
func TestReportsDoNotBlock(t *testing.T) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	o, read := &outbox{fd: ends[1]}, os.NewFile(uintptr(ends[0]), "reports")
	defer read.Close()
	defer unix.Close(ends[1])
	flooded := make(chan error, 1)
	go func() { flooded <- flood(o) }()
	select {
	case err := <-flooded:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(bound):
		t.Fatal("a report waits for its reader")
	}
	done := make(chan error, 1)
	go func() { done <- o.put(report{Gone: true}) }() // the last waits for its reader
	var last []report
	for decoder := json.NewDecoder(read); len(last) == 0 || !last[len(last)-1].Gone; {
		var r report
		if err := decoder.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.Suspended == 0 {
			last = append(last, r)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(last) != 3 || last[0].Stopping != 7 || last[1].Ended == nil || last[1].Ended.Code != 3 {
		t.Errorf("chubbyctl learns of %+v", last)
	}
}

// flood reports more than a pipe holds, and then how the command ended.
func flood(o *outbox) error {
	for range 10_000 {
		if err := o.put(report{Suspended: int(unix.SIGSTOP)}); err != nil {
			return err
		}
	}
	for _, r := range []report{{Stopping: 7}, {Suspended: 20}, {Ended: &commandEnd{Code: 3}}} {
		if err := o.put(r); err != nil {
			return err
		}
	}
	return nil
}

// A shell may have had children before it became chubbyctl. They are not the command's, and are not killed with
// it.
func TestChildrenOfOthersAreSpared(t *testing.T) {
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	f := newFIFO(t)
	p, err := Start(shell(stubborn, f.name), make(chan os.Signal, 1))
	if err != nil {
		t.Fatal(err)
	}
	f.line(t)
	if err := p.guardian.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err == nil {
		t.Error("a lost guardian is no error")
	}
	f.ended(t)
	if s, found := readProcess(other.Process.Pid); !found || !s.alive {
		t.Error("a process that was there before the command was killed with it")
	}
	_ = other.Process.Kill()
	_ = other.Wait()
}

// A guardian that does not start the command in time is killed, and Start returns ErrLate.
func TestGuardianThatNeverStarts(t *testing.T) {
	c := shell("exit 0", "")
	c.Guardian = []string{"/bin/sh", "-c", "exec sleep 1000"}
	began := time.Now()
	c.Allowed = func() (time.Duration, bool) { return 300*time.Millisecond - time.Since(began), true }
	if _, err := Start(c, make(chan os.Signal, 1)); !errors.Is(err, ErrLate) {
		t.Errorf("%v, want %v", err, ErrLate)
	}
}

// If the guardian is killed first, nothing of the command outlives the lock either.
func TestKilledGuardian(t *testing.T) {
	f := newFIFO(t)
	p, err := Start(shell(stubborn, f.name), make(chan os.Signal, 1))
	if err != nil {
		t.Fatal(err)
	}
	f.line(t)
	if err := p.guardian.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err == nil {
		t.Error("a lost guardian is no error")
	}
	f.ended(t)
}

// If chubbyctl is killed or stopped, nothing outlives the lock. The guardian notices at once that it is killed; that
// it is stopped, not before the deadline.
func TestSupervisorKilledOrStopped(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal unix.Signal
		limit  time.Duration
	}{{"killed", unix.SIGKILL, plenty}, {"stopped", unix.SIGSTOP, 10 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFIFO(t)
			cmd := startSupervisor(t, stubborn, f, c.limit)
			f.line(t)
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			f.ended(t)
		})
	}
}

// A signal to chubbyctl reaches the command, and the command's exit code is chubbyctl's.
func TestSupervisorForwards(t *testing.T) {
	f := newFIFO(t)
	cmd := startSupervisor(t, `exec 5>"$1"; trap 'exit 33' USR2; echo ready >&5; while :; do sleep 0.01; done`, f, plenty)
	f.line(t)
	if err := cmd.Process.Signal(unix.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 33 {
		t.Errorf("ended with %v, want 33", err)
	}
}
