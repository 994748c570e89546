package supervise

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain makes this program also what the tests run: the guardian, and a program that runs a command as chubbyctl
// does, which a test can kill or stop.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "guardian":
			if err := RunGuardian(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, "guardian:", err)
				os.Exit(1)
			}
			os.Exit(0)
		case "unheard":
			if err := unheard(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, "guardian:", err)
			}
			os.Exit(1)
		case "headless":
			headless(os.Args[2])
		case "listener":
			os.Exit(listener(os.Args[2], os.Args[3:]...))
		case "supervisor":
			os.Exit(supervisor(os.Args[2], os.Args[3], os.Args[4]))
		}
	}
	if signal.Ignored(unix.SIGHUP) { // under nohup; with a handler it is as usual for what the tests start, too
		signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	}
	os.Exit(m.Run())
}

const (
	plenty = time.Minute      // more than any test takes
	bound  = 20 * time.Second // how long to wait for what must happen
)

func always(d time.Duration) func() (time.Duration, bool) {
	return func() (time.Duration, bool) { return d, true }
}

// allowance is the time of a command that a test ends. Until then it is plenty: to start a guardian and a shell may take
// seconds on a busy machine, and a command whose time ends before it is ready shows something else.
type allowance struct{ end atomic.Int64 }

// left is for Command.Allowed.
func (a *allowance) left() (time.Duration, bool) {
	if end := a.end.Load(); end != 0 {
		return time.Duration(end - now()), true
	}
	return plenty, true
}

// endsIn has the time end that long from now.
func (a *allowance) endsIn(d time.Duration) { a.end.Store(now() + int64(d)) }

// once allows d from now, however often it is asked.
func once(d time.Duration) func() (time.Duration, bool) {
	end := now() + int64(d)
	return func() (time.Duration, bool) { return time.Duration(end - now()), true }
}

// shell is a command that runs a script. $1 is the name of a fifo in scripts
// that need one.
func shell(script string, args ...string) Command {
	return Command{
		Path: "/bin/sh", Args: append([]string{"sh", "-c", script, "sh"}, args...),
		Env:      append(os.Environ(), "GORACE=atexit_sleep_ms=0"), // the race detector keeps processes for a second
		Guardian: []string{os.Args[0], "guardian"},
		Allowed:  always(plenty), Refresh: 50 * time.Millisecond, KillAfter: time.Second, Margin: bound,
		Notice: func(string) {},
	}
}

func start(t *testing.T, c Command) *Process {
	t.Helper()
	p := must(Start(c, make(chan os.Signal, 8)))(t)
	t.Cleanup(func() {
		p.Stop()
		select {
		case <-p.Done():
		case <-time.After(c.KillAfter + time.Second): // the test has failed
			_ = p.guardian.Process.Kill()
		}
	})
	return p
}

func wait(t *testing.T, p *Process) Result {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(bound):
		t.Fatal("the command is not gone")
	}
	result := must(p.Wait())(t)
	return result
}

// endsAs waits for the end of a command, and checks how it has ended.
func endsAs(t *testing.T, p *Process, want Result) {
	t.Helper()
	if got := wait(t, p); got != want {
		t.Errorf("result %+v, want %+v", got, want)
	}
}

// fifo is a named pipe. A process that opens it for writing keeps it open in all that it starts, so its end is the
// end of them all.
type fifo struct {
	name  string
	lines *bufio.Reader
}

func newFIFO(t *testing.T) *fifo {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	noErr(t, unix.Mkfifo(name, 0o600))
	return &fifo{name: name}
}

// line waits for the next line.
func (f *fifo) line(t *testing.T) string {
	t.Helper()
	if f.lines == nil {
		file, err := os.Open(f.name) // blocks until a process opens it for writing
		noErr(t, err)
		t.Cleanup(func() { file.Close() })
		noErr(t, file.SetReadDeadline(time.Now().Add(bound)))
		f.lines = bufio.NewReader(file)
	}
	line := must(f.lines.ReadString('\n'))(t)
	return strings.TrimSpace(line)
}

// says waits for the next line, and checks it.
func (f *fifo) says(t *testing.T, want string) {
	t.Helper()
	if got := f.line(t); got != want {
		t.Errorf("%q is said, want %q", got, want)
	}
}

// ended waits until no process has it open for writing.
func (f *fifo) ended(t *testing.T) {
	t.Helper()
	if _, err := io.Copy(io.Discard, f.lines); err != nil {
		t.Fatalf("something that the command started still runs: %v", err)
	}
}

// supervisor runs a script as chubbyctl does, with one fixed deadline.
func supervisor(script, fifo, limit string) int {
	allowed, err := time.ParseDuration(limit)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c := shell(script, fifo)
	c.Allowed = once(allowed)
	c.KillAfter = 500 * time.Millisecond
	c.Notice = func(text string) { fmt.Fprintln(os.Stderr, text) }
	p, err := Start(c, Listen())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	result, err := p.Wait()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if foreground, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err == nil && foreground != unix.Getpgrp() {
		fmt.Fprintln(os.Stderr, "the foreground was not given back")
	}
	return result.Code
}

func startSupervisor(t *testing.T, script string, f *fifo, limit time.Duration) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "supervisor", script, f.name, limit.String())
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	noErr(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// A guardian that is stopped reads no orders, and its pipe fills up. chubbyctl keeps the deadline nevertheless, and
// ends both then.
func TestOrdersDoNotBlock(t *testing.T) {
	p, f := startStubborn(t, func(c *Command) { c.KillAfter, c.Margin = 200*time.Millisecond, 200*time.Millisecond })
	noErr(t, p.guardian.Process.Signal(unix.SIGSTOP))
	ordered := make(chan struct{})
	go func() {
		defer close(ordered)
		for range 10_000 { // more than a pipe holds
			p.Signal(unix.SIGWINCH)
		}
		p.Stop()
	}()
	select {
	case <-ordered:
	case <-time.After(bound):
		_ = p.guardian.Process.Kill()
		t.Fatal("an order waits for a guardian that reads none")
	}
	endsAs(t, p, Result{Code: 137, Cut: true})
	f.ended(t)
}

// Notices are not read, because the terminal is stopped (Ctrl-S) or a pager shows another page: the command ends in
// time nevertheless.
func TestNoticesDoNotBlock(t *testing.T) {
	f := newFIFO(t)
	c := shell(stubborn, f.name)
	c.KillAfter, c.Margin = 200*time.Millisecond, 200*time.Millisecond
	read := make(chan struct{})
	c.Notice = func(string) { <-read }
	p := must(Start(c, make(chan os.Signal, 8)))(t)
	defer p.Wait()
	defer close(read)
	f.line(t)
	noErr(t, p.guardian.Process.Signal(unix.SIGSTOP))
	p.Stop()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		f.ended(t)
	}()
	select {
	case <-gone:
	case <-time.After(bound):
		_ = p.guardian.Process.Kill()
		t.Error("the command outlives its time until somebody reads")
	}
}

// The command is asked to end once: many programs end at once when they are asked a second time.
func TestAskedToEndOnce(t *testing.T) {
	f := newFIFO(t)
	c := shell(`exec 5>"$1"; for i in 1 2 3 4 5 6 7 8 9 10; do (trap "" TERM; for j in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 3 5>&- & done; wait) 5>&- & done
trap 'echo term >&5' TERM; echo ready >&5; wait; wait; wait; exit 7`, f.name)
	c.KillAfter = bound // it ends by itself in three seconds; until then it may take a while to say that it was asked
	p := start(t, c)
	f.line(t)
	p.Stop()
	wait(t, p)
	if got, err := io.ReadAll(f.lines); err != nil || string(got) != "term\n" {
		t.Errorf("the command got %q (%v)", got, err)
	}
}

// A signal to the process group reaches its members, so only processes outside of it get one of their own.
func TestAudienceIsCountedOnce(t *testing.T) {
	cmd := exec.Command("sh", "-c", `sleep 60 & setsid sh -c 'echo $$; exec sleep 60' & wait`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	noErr(t, err)
	noErr(t, cmd.Start())
	var outside int
	_, err = fmt.Fscanln(out, &outside)
	g := guardian{pid: cmd.Process.Pid}
	got, everybody := g.signalTargets(), family(g.pid)
	for _, pid := range []int{-g.pid, outside} {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = cmd.Wait() // it was killed
	noErr(t, err)
	if len(everybody) < 3 {
		t.Errorf("the family is %v, want the shell and two more", everybody)
	}
	if want := []int{-g.pid, outside}; !slices.Equal(got, want) {
		t.Errorf("the audience is %v, want %v", got, want)
	}
}

// must returns what a call returned that had to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noErr(t, err)
		return value
	}
}

// noErr ends the test if there is an error.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
