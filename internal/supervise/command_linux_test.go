package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// A script without "#!" is run by a shell, as execvp does it; arguments pass unchanged.
func TestScriptWithoutAnInterpreter(t *testing.T) {
	script := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(script, []byte(`[ "$#" = 2 ] && [ "$2" = "a b" ] && exit 7`+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := shell("")
	c.Path, c.Args = script, []string{"job", "", "a b"}
	if got := wait(t, start(t, c)); got != (Result{Code: 7}) {
		t.Errorf("result %+v, want 7", got)
	}
}

// The system says only that a file is not there: it is not the program.
func TestMissingInterpreterIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"#!/bin/sh\r\necho\r\n":       `"/bin/sh\r"`,
		"#!/no/such/shell -e\necho\n": `"/no/such/shell -e"`,
	} {
		script := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		c := shell("")
		c.Path, c.Args = script, []string{script}
		_, err := Start(c, make(chan os.Signal, 1))
		var notRun *NotRunError
		if !errors.As(err, &notRun) || notRun.Code != ExitNotFound || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want a NotRunError with %d that names %s", text, err, ExitNotFound, want)
		}
	}
}

// What a service manager says to chubbyctl by its process number it says to the command. What is for another is left as it is.
func TestVariablesOfOneProcess(t *testing.T) {
	const script = `[ "$LISTEN_PID" = $$ ] && [ "$WATCHDOG_PID" = 1 ] && [ "$LISTEN_FDS" = 2 ] && [ -z "$LISTEN_PIDFDID" ] && [ "$1" = "a b" ] && exit 7`
	c := shell(script, "a b")
	c.Env = append(c.Env, fmt.Sprintf("LISTEN_PID=%d", os.Getpid()), "LISTEN_FDS=2", "LISTEN_PIDFDID=3", "WATCHDOG_PID=1")
	if got := wait(t, start(t, c)); got != (Result{Code: 7}) {
		t.Errorf("result %+v, want 7", got)
	}
}

// The command has the files that chubbyctl was given, under their numbers (make
// gives its jobs 3 and 4), and none of chubbyctl's own.
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
