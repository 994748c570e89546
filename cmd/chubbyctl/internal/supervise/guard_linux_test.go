package supervise

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain also is what the tests run: the guardian, and a program that runs a
// command as chubbyctl does and can be killed or stopped while it does.
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
	bound  = 20 * time.Second // for what must happen
)

func always(d time.Duration) func() (time.Duration, bool) {
	return func() (time.Duration, bool) { return d, true }
}

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
	p, err := Start(c, make(chan os.Signal, 8))
	if err != nil {
		t.Fatal(err)
	}
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
	result, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// fifo is a pipe by name. Whoever opens it for writing keeps it open in all
// that it starts, so its end is the end of them all.
type fifo struct {
	name  string
	lines *bufio.Reader
}

func newFIFO(t *testing.T) *fifo {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return &fifo{name: name}
}

// line waits for the next line.
func (f *fifo) line(t *testing.T) string {
	t.Helper()
	if f.lines == nil {
		file, err := os.Open(f.name) // until somebody opens it for writing
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		if err := file.SetReadDeadline(time.Now().Add(bound)); err != nil {
			t.Fatal(err)
		}
		f.lines = bufio.NewReader(file)
	}
	line, err := f.lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// ended waits until nobody has it open for writing.
func (f *fifo) ended(t *testing.T) {
	t.Helper()
	if _, err := io.Copy(io.Discard, f.lines); err != nil {
		t.Fatalf("something that the command started still runs: %v", err)
	}
}

func TestExitCodePassesThrough(t *testing.T) {
	for script, want := range map[string]int{
		"exit 0":                   0,
		"exit 7":                   7,
		"exit 255":                 255,
		"kill -9 $$":               137,
		"kill -TERM $$":            143,
		`[ "$CHUBBY_TOKEN" = 42 ]`: 0,
	} {
		t.Run(script, func(t *testing.T) {
			c := shell(script)
			c.Env = append(c.Env, "CHUBBY_TOKEN=42")
			if got := wait(t, start(t, c)); got != (Result{Code: want}) {
				t.Errorf("result %+v, want code %d and not cut", got, want)
			}
		})
	}
}

func TestArgumentsPassUnchanged(t *testing.T) {
	c := shell(`[ "$#" = 3 ] && [ "$1" = "a b" ] && [ "$2" = "--wait" ] && [ "$3" = "" ]`, "a b", "--wait", "")
	if got := wait(t, start(t, c)); got.Code != 0 {
		t.Errorf("the command got other arguments (%+v)", got)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		"no-such-command-anywhere":      ExitNotFound,
		filepath.Join(dir, "not-there"): ExitNotFound,
		plain:                           ExitNotRunnable,
		dir:                             ExitNotRunnable,
	} {
		_, err := Find(name)
		var notRun *NotRunError
		if !errors.As(err, &notRun) || notRun.Code != want {
			t.Errorf("Find(%q): %v, want a NotRunError with %d", name, err, want)
		}
	}
	if path, err := Find("sh"); err != nil || !filepath.IsAbs(path) {
		t.Errorf("Find(sh) = %q, %v", path, err)
	}
}

// A file may look executable and not be.
func TestStartOfWhatTheSystemCannotRun(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("\x7fELF nonsense"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := shell("")
	c.Path, c.Args = broken, []string{broken}
	_, err := Start(c, make(chan os.Signal, 1))
	var notRun *NotRunError
	if !errors.As(err, &notRun) || notRun.Code != ExitNotRunnable {
		t.Errorf("Start: %v, want a NotRunError with %d", err, ExitNotRunnable)
	}
}

// Signals that a terminal would send go to the whole process group, so that a
// child of a shell is not left behind (Consul #2999).
func TestSignalsReachTheGroup(t *testing.T) {
	f := newFIFO(t)
	p := start(t, shell(`exec 5>"$1"; trap 'wait; exit 9' TERM
		sh -c 'trap "echo child >&5; exit" TERM; echo ready >&5; while :; do sleep 0.01; done' &
		wait`, f.name))
	if got := f.line(t); got != "ready" {
		t.Fatal(got)
	}
	p.Signal(unix.SIGTERM)
	if got := f.line(t); got != "child" {
		t.Errorf("the child got %q", got)
	}
	if got := wait(t, p); got != (Result{Code: 9}) {
		t.Errorf("result %+v, want 9: the command's own", got)
	}
}

// Others go to the command alone: its children may not expect them.
func TestOtherSignalsReachTheCommandAlone(t *testing.T) {
	f := newFIFO(t)
	p := start(t, shell(`exec 5>"$1"; trap 'echo right >&5' USR1; trap 'exit 4' USR2
		sh -c 'trap "echo wrong >&5" USR1; trap "exit" TERM; echo ready >&5; while :; do sleep 0.01; done' &
		while :; do wait; done`, f.name))
	f.line(t)
	p.Signal(unix.SIGUSR1)
	if got := f.line(t); got != "right" {
		t.Errorf("USR1 was taken by: %s", got)
	}
	p.Signal(unix.SIGUSR2) // not SIGHUP, which a shell cannot trap if this test runs under nohup
	if got := wait(t, p); got.Code != 4 {
		t.Errorf("result %+v, want 4", got)
	}
}

// stubborn ignores what asks it to end, and has a child that has left its
// process group and its session, and ignores that too.
const stubborn = `exec 5>"$1"; trap '' TERM INT HUP
	setsid sh -c 'trap "" TERM; echo escaped >&5; while :; do sleep 0.01; done' &
	while :; do sleep 0.01; done`

func TestEverythingIsGoneAtTheDeadline(t *testing.T) {
	f := newFIFO(t)
	c := shell(stubborn, f.name)
	limit := 1500 * time.Millisecond
	c.KillAfter = 500 * time.Millisecond
	began := now()
	c.Allowed = once(limit)
	p := start(t, c)
	f.line(t)
	got := wait(t, p)
	took := time.Duration(now() - began)
	f.ended(t)
	if got != (Result{Code: 137, Cut: true}) {
		t.Errorf("result %+v, want cut by SIGKILL", got)
	}
	if took < limit-c.KillAfter || took > limit+bound/2 {
		t.Errorf("gone after %v, want about %v", took, limit)
	}
}

// A command that ends when it is asked is not killed.
func TestDeadlineAsksFirst(t *testing.T) {
	f := newFIFO(t)
	c := shell(`exec 5>"$1"; trap 'echo asked >&5; exit 6' TERM; echo ready >&5; while :; do sleep 0.01; done`, f.name)
	c.KillAfter = bound
	c.Allowed = once(bound + 500*time.Millisecond)
	p := start(t, c)
	f.line(t)
	if got := f.line(t); got != "asked" {
		t.Error(got)
	}
	if got := wait(t, p); got != (Result{Code: 6, Cut: true}) {
		t.Errorf("result %+v, want 6, cut", got)
	}
}

// A deadline that is put off in time is never noticed.
func TestDeadlineIsPutOff(t *testing.T) {
	c := shell("sleep 2.5")
	c.KillAfter = 100 * time.Millisecond
	c.Allowed = always(2 * time.Second)
	if got := wait(t, start(t, c)); got != (Result{}) {
		t.Errorf("result %+v, want an undisturbed end", got)
	}
}

// No news is not good news: the guardian keeps to what it knows.
func TestNoNewsDoesNotPutOff(t *testing.T) {
	asked := 0
	c := shell("sleep 1000")
	c.KillAfter = 100 * time.Millisecond
	c.Allowed = func() (time.Duration, bool) {
		asked++
		return 300 * time.Millisecond, asked == 1
	}
	if got := wait(t, start(t, c)); got != (Result{Code: 143, Cut: true}) {
		t.Errorf("result %+v, want cut by SIGTERM", got)
	}
}

func TestStopKillsAfterTheUsualTime(t *testing.T) {
	f := newFIFO(t)
	c := shell(stubborn, f.name)
	c.KillAfter = 200 * time.Millisecond
	p := start(t, c)
	f.line(t)
	p.Stop()
	if got := wait(t, p); got != (Result{Code: 137, Cut: true}) {
		t.Errorf("result %+v, want cut by SIGKILL", got)
	}
	f.ended(t)
}

// A deadline that comes closer counts also while the command is given its time.
func TestDeadlineCountsWhileStopping(t *testing.T) {
	f := newFIFO(t)
	c := shell(stubborn, f.name)
	c.KillAfter = plenty / 2
	var closer atomic.Bool
	soon := always(200 * time.Millisecond)
	c.Allowed = func() (time.Duration, bool) {
		if closer.Load() {
			return soon()
		}
		return plenty, true
	}
	p := start(t, c)
	f.line(t)
	p.Stop()
	closer.Store(true)
	if got := wait(t, p); got != (Result{Code: 137, Cut: true}) {
		t.Errorf("result %+v, want killed at the deadline", got)
	}
}

// An interrupt that came before the command is for the command; another signal
// is not, which a command is not prepared for from its first moment.
func TestSignalsBeforeTheStart(t *testing.T) {
	signals := make(chan os.Signal, 2)
	signals <- unix.SIGUSR1
	signals <- unix.SIGTERM
	p, err := Start(shell("sleep 1000"), signals)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	if got := wait(t, p); got != (Result{Code: 143}) {
		t.Errorf("result %+v, want ended by SIGTERM", got)
	}
}

// A stopped process takes no signal but SIGKILL, until it is continued.
func TestSuspendedCommandIsStopped(t *testing.T) {
	f := newFIFO(t)
	c := shell(`exec 5>"$1"; trap 'echo asked >&5; exit 6' TERM; echo $$ >&5; kill -STOP $$; while :; do sleep 0.01; done`, f.name)
	c.KillAfter = bound
	p := start(t, c)
	f.line(t)
	p.Stop()
	if got := wait(t, p); got != (Result{Code: 6, Cut: true}) {
		t.Errorf("result %+v, want 6: continued to end in order", got)
	}
}

// What a command leaves behind still works under the lock, so it goes before
// the lock does.
func TestLeftoversAreStopped(t *testing.T) {
	f := newFIFO(t)
	var notices []string
	c := shell(`exec 5>"$1"; mkfifo "$1.go"
		setsid sh -c 'echo there >&5; echo go >"$0.go"; sleep 1000' "$1" & read line <"$1.go"; exit 3`, f.name)
	c.Notice = func(text string) { notices = append(notices, text) }
	p := start(t, c)
	f.line(t)
	if got := wait(t, p); got != (Result{Code: 3}) {
		t.Errorf("result %+v, want 3, not cut", got)
	}
	f.ended(t)
	if len(notices) != 1 || !strings.Contains(notices[0], "behind") {
		t.Errorf("notices %q, want one about what was left behind", notices)
	}
}

// A descendant that keeps forking, each parent ending at once, is in no list of
// processes for long. It is gone all the same when the command is said to be.
func TestHoppingDescendants(t *testing.T) {
	const hop = `exec 5>"$1"; echo up >&5; f() { [ "$1" -gt 0 ] || exec sleep 60; f $(($1-1)) & exit 0; }; f $2 & exit 0`
	for _, hops := range []string{"2", "20", "50"} {
		for range 5 {
			f := newFIFO(t)
			c := shell(hop, f.name, hops)
			c.KillAfter = 200 * time.Millisecond
			p := start(t, c)
			f.line(t)
			wait(t, p)
			f.ended(t)
		}
	}
}

// Without time left nothing is started, whatever comes first.
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

// A guardian that does not come to start the command in its time is killed, and
// the command is late.
func TestGuardianThatNeverStarts(t *testing.T) {
	c := shell("exit 0", "")
	c.Guardian = []string{"/bin/sh", "-c", "exec sleep 1000"}
	began := time.Now()
	c.Allowed = func() (time.Duration, bool) { return 300*time.Millisecond - time.Since(began), true }
	if _, err := Start(c, make(chan os.Signal, 1)); !errors.Is(err, ErrLate) {
		t.Errorf("%v, want %v", err, ErrLate)
	}
}

// The guardian is the first to go, and takes nobody's protection with it.
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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// Whatever becomes of chubbyctl, nothing outlives the lock. Its end is noticed
// at once; that it is stopped, not before the deadline.
func TestSupervisorKilledOrStopped(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal unix.Signal
		limit  time.Duration
	}{{"killed", unix.SIGKILL, plenty}, {"stopped", unix.SIGSTOP, 3 * time.Second}} {
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

// The command has the files that chubbyctl was given, under their numbers (make
// gives its jobs 3 and 4), and none of ours.
func TestOpenFilesPassThrough(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	given, err := unix.FcntlInt(write.Fd(), unix.F_DUPFD, 100)
	if err != nil {
		t.Fatal(err)
	}
	write.Close()
	want := map[string]bool{} // what every child of this process is given
	for fd := range 1024 {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			want[fmt.Sprint(fd)] = true
		}
	}
	p := start(t, shell(`exec >/proc/$$/fd/"$1"; for fd in /proc/$$/fd/*; do [ -e "$fd" ] && echo "${fd##*/}"; done`, fmt.Sprint(given)))
	wait(t, p)
	if err := unix.Close(given); err != nil {
		t.Fatal(err)
	}
	listed, err := io.ReadAll(read)
	if err != nil || len(listed) == 0 {
		t.Fatalf("the command could not write to file %d: %v", given, err)
	}
	for fd := range strings.FieldsSeq(string(listed)) {
		if !want[fd] && fd != "1" {
			t.Errorf("the command has file %s, which is ours", fd)
		}
	}
}

// What is sent to chubbyctl reaches the command, and the command's end is
// chubbyctl's.
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
