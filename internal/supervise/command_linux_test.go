package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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
			endsAs(t, start(t, c), Result{Code: want})
		})
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	noErr(t, os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644))
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
	noErr(t, os.WriteFile(broken, []byte("\x7fELF nonsense"), 0o755))
	c := shell("")
	c.Path, c.Args = broken, []string{broken}
	_, err := Start(c, make(chan os.Signal, 1))
	var notRun *NotRunError
	if !errors.As(err, &notRun) || notRun.Code != ExitNotRunnable {
		t.Errorf("Start: %v, want a NotRunError with %d", err, ExitNotRunnable)
	}
}

// A script without "#!" is run by a shell, as execvp does it; arguments pass unchanged.
func TestScriptWithoutAnInterpreter(t *testing.T) {
	script := filepath.Join(t.TempDir(), "job")
	noErr(t, os.WriteFile(script, []byte(`[ "$#" = 2 ] && [ "$2" = "a b" ] && exit 7`+"\n"), 0o755))
	c := shell("")
	c.Path, c.Args = script, []string{"job", "", "a b"}
	endsAs(t, start(t, c), Result{Code: 7})
}

// The system says only that a file is not there: it is not the program.
func TestMissingInterpreterIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"#!/bin/sh\r\necho\r\n":       `"/bin/sh\r"`,
		"#!/no/such/shell -e\necho\n": `"/no/such/shell -e"`,
	} {
		script := filepath.Join(t.TempDir(), "script")
		noErr(t, os.WriteFile(script, []byte(text), 0o755))
		c := shell("")
		c.Path, c.Args = script, []string{script}
		_, err := Start(c, make(chan os.Signal, 1))
		var notRun *NotRunError
		if !errors.As(err, &notRun) || notRun.Code != ExitNotFound || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want a NotRunError with %d that names %s", text, err, ExitNotFound, want)
		}
	}
}

// A service manager addresses chubbyctl by its process number: the command takes that role. Variables for others stay as they are.
func TestVariablesOfOneProcess(t *testing.T) {
	const script = `[ "$LISTEN_PID" = $$ ] && [ "$WATCHDOG_PID" = 1 ] && [ "$LISTEN_FDS" = 2 ] && [ -z "$LISTEN_PIDFDID" ] && [ "$1" = "a b" ] && exit 7`
	c := shell(script, "a b")
	c.Env = append(c.Env, fmt.Sprintf("LISTEN_PID=%d", os.Getpid()), "LISTEN_FDS=2", "LISTEN_PIDFDID=3", "WATCHDOG_PID=1")
	endsAs(t, start(t, c), Result{Code: 7})
}

// The command has the files that chubbyctl was given, under their numbers (make
// gives its jobs 3 and 4), and none of chubbyctl's own.
func TestOpenFilesPassThrough(t *testing.T) {
	read, write, err := os.Pipe()
	noErr(t, err)
	defer read.Close()
	given := must(unix.FcntlInt(write.Fd(), unix.F_DUPFD, 100))(t)
	write.Close()
	want := map[string]bool{} // what every child of this process is given
	for fd := range 1024 {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			want[fmt.Sprint(fd)] = true
		}
	}
	p := start(t, shell(`exec >/proc/$$/fd/"$1"; for fd in /proc/$$/fd/*; do [ -e "$fd" ] && echo "${fd##*/}"; done`, fmt.Sprint(given)))
	wait(t, p)
	noErr(t, unix.Close(given))
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

// Processes that a command leaves still work under the lock, so they end before the lock is released.
func TestLeftoversAreStopped(t *testing.T) {
	f := newFIFO(t)
	var notices []string
	c := shell(`exec 5>"$1"; mkfifo "$1.go"
		setsid sh -c 'echo there >&5; echo go >"$0.go"; sleep 1000' "$1" & read line <"$1.go"; exit 3`, f.name)
	c.Notice = func(text string) { notices = append(notices, text) }
	p := start(t, c)
	f.line(t)
	endsAs(t, p, Result{Code: 3})
	f.ended(t)
	if len(notices) != 1 || !strings.Contains(notices[0], "behind") {
		t.Errorf("notices %q, want one about what was left behind", notices)
	}
}

// A job whose output goes through a logger that is slower than the job: the logger reads everything before the lock is
// released, and nothing is said of it.
func TestLogOfAFailedJobIsWhole(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	c := shell("")
	c.Path, c.Args = "/bin/bash", []string{"bash", "-c", `exec > >(while read -r line; do printf "%(%T)T %s\n" -1 "$line"; done >"$1") 2>&1
		seq 1 3000; echo FATAL; exit 3`, "bash", log}
	c.KillAfter = bound
	c.Notice = func(text string) { t.Errorf("notice %q", text) }
	began := time.Now()
	endsAs(t, start(t, c), Result{Code: 3})
	if took := time.Since(began); took >= bound {
		t.Errorf("it took %v", took)
	}
	text := must(os.ReadFile(log))(t)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 3001 || !strings.HasSuffix(lines[len(lines)-1], " FATAL") {
		t.Errorf("the log has %d lines, and ends with %q; want 3001 and FATAL", len(lines), lines[len(lines)-1])
	}
}

// Processes that the command has left are stopped at once by an interrupt, and when the time is over.
func TestLeftoversDoNotOutstay(t *testing.T) {
	for name, end := range map[string]func(*Process, *allowance){
		"interrupt": func(p *Process, _ *allowance) { p.Signal(unix.SIGINT) },
		"stop":      func(p *Process, _ *allowance) { p.Stop() },
		"its time":  func(_ *Process, ours *allowance) { ours.endsIn(plenty/2 + time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFIFO(t)
			c := shell(`exec 5>"$1"; echo $$ >&5; { trap 'echo asked >&5; exit' TERM; trap '' INT; while :; do sleep 0.01; done; } & exit 3`, f.name)
			c.KillAfter = plenty / 2
			var ours allowance
			c.Allowed = ours.left
			p := start(t, c)
			pid := number(t, f)
			for end := time.Now().Add(bound); unix.Kill(pid, 0) == nil && time.Now().Before(end); { // until the guardian has reaped it
			}
			end(p, &ours)
			f.says(t, "asked")
			endsAs(t, p, Result{Code: 3})
		})
	}
}

// Each of these descendants forks and ends at once, so none is in a list of processes for long. They are gone
// when the command is reported gone.
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

// The main goroutine of a program is on the main thread if it was locked to it
// while packages were initialized.
func init() { //nolint:gochecknoinits // later it is too late for that
	if len(os.Args) > 1 && os.Args[1] == "headless" {
		runtime.LockOSThread()
	}
}

// headless is a program whose main thread ends while its other threads go on, as
// those of a C program do after pthread_exit in main. /proc shows it in state
// Z. It has a child, and keeps the fifo open.
func headless(name string) {
	fifo, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		os.Exit(1)
	}
	child := exec.Command("sleep", "1000")
	child.Stdout = fifo
	if err := child.Start(); err != nil {
		os.Exit(1)
	}
	go func() {
		for !mainThreadEnded() {
			runtime.Gosched()
		}
		fmt.Fprintln(fifo, os.Getpid())
		select {} // until it is killed
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// mainThreadEnded reads from /proc whether this process is in state Z.
func mainThreadEnded() bool {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return false
	}
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')'):], []byte(") Z"))
}

// A descendant whose main thread has ended is not dead. It and its children are
// stopped like all others, when the command ends and when its time ends.
func TestHeadlessDescendants(t *testing.T) {
	const script = `setsid "$2" headless "$1" &
		trap 'exit 3' USR2; trap '' TERM; while :; do sleep 0.01; done`
	run := func(t *testing.T, then func(p *Process, ours *allowance)) Result {
		f := newFIFO(t)
		c := shell(script, f.name, os.Args[0])
		var ours allowance
		c.KillAfter, c.Allowed = 200*time.Millisecond, ours.left
		p := start(t, c)
		pid := number(t, f)
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		then(p, &ours)
		result := wait(t, p)
		f.ended(t)
		return result
	}
	t.Run("the command ends", func(t *testing.T) {
		if got := run(t, func(p *Process, _ *allowance) { p.Signal(syscall.SIGUSR2) }); got != (Result{Code: 3}) {
			t.Errorf("result %+v, want 3, not cut", got)
		}
	})
	t.Run("its time ends", func(t *testing.T) {
		if got := run(t, func(_ *Process, ours *allowance) { ours.endsIn(time.Second) }); got != (Result{Code: 137, Cut: true}) {
			t.Errorf("result %+v, want cut by SIGKILL", got)
		}
	})
}
