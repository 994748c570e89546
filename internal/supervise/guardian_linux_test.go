package supervise

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A guardian that is stopped notices neither orders nor the time. chubbyctl ends it then, with the command and
// what it has started, at the deadline, or when it has asked the command to end.
func TestStoppedGuardian(t *testing.T) {
	for name, stop := range map[string]bool{"the time ends": false, "asked to end": true} {
		t.Run(name, func(t *testing.T) {
			var ours allowance
			p, f := startStubborn(t, func(c *Command) {
				c.KillAfter, c.Margin, c.Allowed = 200*time.Millisecond, 200*time.Millisecond, ours.left
			})
			noErr(t, p.guardian.Process.Signal(unix.SIGSTOP))
			if stop {
				p.Stop()
			} else {
				ours.endsIn(time.Second)
			}
			endsAs(t, p, Result{Code: 137, Cut: true})
			f.ended(t)
		})
	}
}

// The end of a chubbyctl that is killed continues its guardian, if that is stopped. The kernel alone would not:
// the guardian's new parent is of the same session here.
func TestStoppedGuardianOfAKilledChubbyctl(t *testing.T) {
	noErr(t, adopt())
	f := newFIFO(t)
	cmd := startSupervisor(t, `exec 5>"$1"; echo $PPID >&5; while :; do sleep 0.01; done`, f, plenty)
	guardian := number(t, f)
	noErr(t, unix.Kill(guardian, unix.SIGSTOP))
	t.Cleanup(func() { _ = unix.Kill(guardian, unix.SIGKILL) })
	waitForState(t, guardian, 'T')
	noErr(t, cmd.Process.Kill())
	f.ended(t)
}

// A signal to every process of a service reaches the command through chubbyctl and, as here, directly, but not
// through the guardian once more.
func TestGuardianPassesNothingOn(t *testing.T) {
	f := newFIFO(t)
	p := start(t, shell(`exec 5>"$1"; trap 'echo term >&5' TERM; trap 'exit 5' USR2; echo ready >&5; while :; do sleep 0.01; done`, f.name))
	f.line(t)
	noErr(t, p.guardian.Process.Signal(unix.SIGTERM))
	noErr(t, p.guardian.Process.Signal(unix.SIGUSR2))
	p.Signal(unix.SIGTERM)
	f.says(t, "term")
	p.Signal(unix.SIGUSR2)
	endsAs(t, p, Result{Code: 5})
	if rest, err := io.ReadAll(f.lines); err != nil || len(rest) > 0 {
		t.Errorf("the command got %q besides (%v)", rest, err)
	}
}

// A program that throttles the command by stopping it fills the pipe of reports while chubbyctl is stopped. The
// guardian keeps the deadline nevertheless, and chubbyctl learns how the command ended.
func TestReportsDoNotBlock(t *testing.T) {
	var ends [2]int
	noErr(t, unix.Pipe2(ends[:], unix.O_CLOEXEC))
	o, read := &outbox{fd: ends[1]}, os.NewFile(uintptr(ends[0]), "reports")
	defer read.Close()
	defer unix.Close(ends[1])
	flooded := make(chan error, 1)
	go func() { flooded <- flood(o) }()
	select {
	case err := <-flooded:
		noErr(t, err)
	case <-time.After(bound):
		t.Fatal("a report waits for its reader")
	}
	done := make(chan error, 1)
	go func() { done <- o.put(report{Gone: true}) }() // the last waits for its reader
	var last []report
	for decoder := json.NewDecoder(read); len(last) == 0 || !last[len(last)-1].Gone; {
		var r report
		noErr(t, decoder.Decode(&r))
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
	for _, r := range []report{{Stopping: 7}, {Suspended: 20}, {Ended: &Result{Code: 3}}} {
		if err := o.put(r); err != nil {
			return err
		}
	}
	return nil
}

// If the guardian is killed first, nothing of the command outlives the lock either. A shell may have had children before
// it became chubbyctl: they are not the command's, and are not killed with it.
func TestKilledGuardian(t *testing.T) {
	other := exec.Command("sleep", "60")
	noErr(t, other.Start())
	f := newFIFO(t)
	p := must(Start(shell(stubborn, f.name), make(chan os.Signal, 1)))(t)
	f.line(t)
	noErr(t, p.guardian.Process.Kill())
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
			noErr(t, cmd.Process.Signal(c.signal))
			f.ended(t)
		})
	}
}

// A signal to chubbyctl reaches the command, and the command's exit code is chubbyctl's.
func TestSupervisorForwards(t *testing.T) {
	f := newFIFO(t)
	cmd := startSupervisor(t, `exec 5>"$1"; trap 'exit 33' USR2; echo ready >&5; while :; do sleep 0.01; done`, f, plenty)
	f.line(t)
	noErr(t, cmd.Process.Signal(unix.SIGUSR2))
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 33 {
		t.Errorf("ended with %v, want 33", err)
	}
}

// stubborn ignores the signals that ask it to end. It has a child that has left its process group and
// its session, and ignores them too.
const stubborn = `exec 5>"$1"; trap '' TERM INT HUP
	setsid sh -c 'trap "" TERM; echo escaped >&5; while :; do sleep 0.01; done' &
	while :; do sleep 0.01; done`

// startStubborn starts a stubborn command, as edited, and waits until it runs.
func startStubborn(t *testing.T, edit func(*Command)) (*Process, *fifo) {
	t.Helper()
	f := newFIFO(t)
	c := shell(stubborn, f.name)
	edit(&c)
	p := start(t, c)
	f.line(t)
	return p, f
}

func TestEverythingIsGoneAtTheDeadline(t *testing.T) {
	const limit, killAfter = 1500 * time.Millisecond, 500 * time.Millisecond
	var ours allowance
	p, f := startStubborn(t, func(c *Command) { c.KillAfter, c.Allowed = killAfter, ours.left })
	began := now()
	ours.endsIn(limit)
	endsAs(t, p, Result{Code: 137, Cut: true})
	took := time.Duration(now() - began)
	f.ended(t)
	if took < limit-killAfter || took > limit+bound/2 {
		t.Errorf("gone after %v, want about %v", took, limit)
	}
}

// A command that ends when it is asked is not killed.
func TestDeadlineAsksFirst(t *testing.T) {
	f := newFIFO(t)
	c := shell(`exec 5>"$1"; trap 'echo asked >&5; exit 6' TERM; echo ready >&5; while :; do sleep 0.01; done`, f.name)
	c.KillAfter = bound
	var ours allowance
	c.Allowed = ours.left
	p := start(t, c)
	f.line(t)
	ours.endsIn(bound)
	f.says(t, "asked")
	endsAs(t, p, Result{Code: 6, Cut: true})
}

// A command does not notice a deadline that is put off in time.
func TestDeadlineIsPutOff(t *testing.T) {
	c := shell("sleep 5.5")
	c.KillAfter = 100 * time.Millisecond
	c.Allowed = always(5 * time.Second)
	endsAs(t, start(t, c), Result{})
}

// Without news the guardian keeps to the instants that it knows.
func TestNoNewsDoesNotPutOff(t *testing.T) {
	const enough, last, silent = 0, 1, 2
	var news atomic.Int32
	c := shell("sleep 1000")
	c.KillAfter = bound / 2 // a busy machine may take a while to end it by the first signal
	c.Allowed = func() (time.Duration, bool) {
		if news.Load() == enough {
			return plenty, true
		}
		return c.KillAfter + 300*time.Millisecond, news.CompareAndSwap(last, silent)
	}
	p := start(t, c)
	news.Store(last)
	endsAs(t, p, Result{Code: 143, Cut: true})
}

// A command that does not end when it is asked is killed: after the usual time, or at a deadline that comes closer meanwhile.
func TestStubbornCommandIsKilled(t *testing.T) {
	for name, c := range map[string]struct {
		killAfter time.Duration
		closer    bool
	}{"after the usual time": {200 * time.Millisecond, false}, "at the deadline": {plenty / 2, true}} {
		t.Run(name, func(t *testing.T) {
			var ours allowance
			p, f := startStubborn(t, func(s *Command) { s.KillAfter, s.Allowed = c.killAfter, ours.left })
			p.Stop()
			if c.closer {
				ours.endsIn(200 * time.Millisecond)
			}
			endsAs(t, p, Result{Code: 137, Cut: true})
			f.ended(t)
		})
	}
}

// If there is no time left, nothing is started.
func TestLateStart(t *testing.T) {
	for name, allowed := range map[string]func() (time.Duration, bool){
		"no news":        func() (time.Duration, bool) { return plenty, false },
		"over":           func() (time.Duration, bool) { return -time.Second, true },
		"less than half": func() (time.Duration, bool) { return 500 * time.Millisecond, true }, // KillAfter is a second
	} {
		mark := filepath.Join(t.TempDir(), "started")
		c := shell(`: >"$1"`, mark)
		c.Allowed = allowed
		signals := make(chan os.Signal, 1)
		signals <- unix.SIGTERM
		if _, err := Start(c, signals); !errors.Is(err, ErrLate) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(mark); err == nil {
			t.Errorf("%s: the command was started", name)
		}
	}
}
