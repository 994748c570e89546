package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminalPair opens a pseudo terminal: a test writes to the first what a person types, and a program reads the second.
func terminalPair(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// notices collects what the supervisor prints.
type notices struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (n *notices) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notices) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

func startOnTerminal(t *testing.T, script string, f *fifo) (*exec.Cmd, *os.File, *notices) {
	t.Helper()
	person, program := terminalPair(t)
	var said notices
	cmd := exec.Command(os.Args[0], "supervisor", script, f.name, plenty.String())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, &said
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
	return cmd, person, &said
}

func typed(t *testing.T, person *os.File, text string) {
	t.Helper()
	if _, err := person.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// With a terminal, the command is its foreground: it reads what is typed, and
// Ctrl-C is for it alone. Afterwards the foreground is given back.
func TestTerminalIsTheCommands(t *testing.T) {
	f := newFIFO(t)
	cmd, person, said := startOnTerminal(t, `exec 5>"$1"; trap 'exit 21' INT; read line; echo "read $line" >&5; while :; do sleep 0.01; done`, f)
	typed(t, person, "hello\n")
	if got := f.line(t); got != "read hello" {
		t.Errorf("the command %s", got)
	}
	typed(t, person, "\x03")
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 21 {
		t.Errorf("after Ctrl-C: %v, want 21: the command's own", err)
	}
	if strings.Contains(said.String(), "foreground") || strings.Contains(said.String(), "suspended") {
		t.Errorf("the terminal: %s", said)
	}
}

// Ctrl-Z stops the command, and chubbyctl with it. If no shell can continue them, as here, the command is continued at
// once.
func TestCtrlZWithoutAShell(t *testing.T) {
	f := newFIFO(t)
	cmd, person, said := startOnTerminal(t, `exec 5>"$1"; read line; echo "read $line" >&5; read line; echo "read $line" >&5; exit 4`, f)
	typed(t, person, "one\n")
	if got := f.line(t); got != "read one" {
		t.Errorf("the command %s", got)
	}
	typed(t, person, "\x1a")
	typed(t, person, "two\n")
	if got := f.line(t); got != "read two" {
		t.Errorf("the command %s", got)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 4 {
		t.Errorf("ended with %v, want 4", err)
	}
	if !strings.Contains(said.String(), "suspended") {
		t.Errorf("nothing was said of being suspended: %q", said)
	}
}
