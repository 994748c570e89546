package supervise

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// startPipeline runs a pipeline in the foreground of a terminal, as an interactive shell does. In the line, "$0" supervisor "$1"
// "$2" "$3" runs the script under a supervisor, and "$4" is the name of the fifo. A script that is to be ended by Ctrl-C execs
// its last command: a child of the shell that has not called exec yet would lose the signal.
func startPipeline(t *testing.T, line, script string, f *fifo) (cmd *exec.Cmd, person *os.File) {
	t.Helper()
	person, program := terminalPair(t)
	cmd = exec.Command("bash", "-c", "set -m; "+line, os.Args[0], script, f.name, plenty.String(), f.name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, person) }() // reads what the terminal shows; ends with the terminal
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, person
}

// A command whose standard input is a pipe asks at the terminal, as psql and ssh do for a password.
func TestCommandAsksBesideAPipe(t *testing.T) {
	f := newFIFO(t)
	cmd, person := startPipeline(t, `echo payload | "$0" supervisor "$1" "$2" "$3"; exit $?`,
		`exec 5>"$1"; read password </dev/tty; read input; echo "$password $input" >&5; exit 6`, f)
	typed(t, person, "secret\n")
	if got := f.line(t); got != "secret payload" {
		t.Errorf("the command read %q", got)
	}
	if code := ends(t, cmd); code != 6 {
		t.Errorf("it ended with %d, want 6, the command's own", code)
	}
}

// The next of a pipeline asks at the terminal, as sudo and less do.
func TestPipelineAsks(t *testing.T) {
	f := newFIFO(t)
	cmd, person := startPipeline(t, `"$0" supervisor "$1" "$2" "$3" | { exec 5>"$4"; read password </dev/tty; read input; echo "$password $input" >&5; exit 7; }; exit $?`,
		`echo made`, f)
	typed(t, person, "secret\n")
	if got := f.line(t); got != "secret made" {
		t.Errorf("the next of the pipeline read %q", got)
	}
	if code := ends(t, cmd); code != 7 {
		t.Errorf("it ended with %d, want 7, the pipeline's", code)
	}
}

// Both ask, in turn: each has the terminal when it asks.
func TestTerminalGoesToWhoAsks(t *testing.T) {
	f := newFIFO(t)
	cmd, person := startPipeline(t, `"$0" supervisor "$1" "$2" "$3" | {
			exec 5>"$4"; read turn; read line </dev/tty; echo "the next read $line" >&5; : >"$4.turn"; read turn; read line </dev/tty; trap "" INT; echo "the next read $line" >&5; }; exit $?`, // it may not have ended yet at the interrupt
		`exec 5>"$1"; read line </dev/tty; echo "the command read $line" >&5; echo turn
		while ! [ -e "$1.turn" ]; do sleep 0.01; done; read line </dev/tty; echo "the command read $line" >&5; echo turn; exec sleep 1000`, f)
	for _, want := range []string{"the command read 1", "the next read 2", "the command read 3", "the next read 4"} {
		typed(t, person, want[len(want)-1:]+"\n")
		if got := f.line(t); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	typed(t, person, "\x03") // for all of the pipeline
	if code := ends(t, cmd); code != 0 {
		t.Errorf("it ended with %d, want 0, that of the last in the pipeline", code)
	}
}

// Ctrl-Z, fg and Ctrl-C are for all of a pipeline.
func TestPipelineIsSuspended(t *testing.T) {
	f := newFIFO(t)
	cmd, person := startPipeline(t, `"$0" supervisor "$1" "$2" "$3" | {
			exec 5>"$4"; echo up >&5; read line </dev/tty; echo "read $line" >&5; }
		fg >&2; exit $?`,
		`exec 6>"$1"; echo up >&6; exec sleep 1000`, f)
	f.line(t)
	f.line(t)
	typed(t, person, "\x1a")
	typed(t, person, "on\n")
	if got := f.line(t); got != "read on" {
		t.Errorf("the next of the pipeline: %q", got)
	}
	typed(t, person, "\x03")
	ends(t, cmd)
	f.ended(t)
}
