package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminalPair opens a pseudo terminal: a test writes to the first what a person types, and a program reads the second.
func terminalPair(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	noErr(t, err)
	t.Cleanup(func() { person.Close() })
	noErr(t, unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	noErr(t, err)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	noErr(t, err)
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
	var said notices
	cmd := exec.Command(os.Args[0], "supervisor", script, f.name, plenty.String())
	cmd.Stderr = &said
	return cmd, onTerminal(t, cmd), &said
}

// onTerminal starts a program as the first of a session that has a terminal, until the end of the test.
func onTerminal(t *testing.T, cmd *exec.Cmd) (person *os.File) {
	t.Helper()
	person, program := terminalPair(t)
	cmd.Stdin, cmd.Stdout = program, program
	if cmd.Stderr == nil {
		cmd.Stderr = program
	}
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	noErr(t, cmd.Start())
	go func() { _, _ = io.Copy(io.Discard, person) }() // reads what the terminal shows; ends with the terminal
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return person
}

func typed(t *testing.T, person *os.File, text string) {
	t.Helper()
	must(person.WriteString(text))(t)
}

// With a terminal, the command is its foreground: it reads what is typed, and
// Ctrl-C is for it alone. Afterwards the foreground is given back.
func TestTerminalIsTheCommands(t *testing.T) {
	f := newFIFO(t)
	cmd, person, said := startOnTerminal(t, `exec 5>"$1"; trap 'exit 21' INT; read line; echo "read $line" >&5; while :; do sleep 0.01; done`, f)
	typed(t, person, "hello\n")
	f.says(t, "read hello")
	typed(t, person, "\x03")
	exits(t, cmd, 21)
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
	f.says(t, "read one")
	typed(t, person, "\x1a")
	typed(t, person, "two\n")
	f.says(t, "read two")
	exits(t, cmd, 4)
	if !strings.Contains(said.String(), "suspended") {
		t.Errorf("nothing was said of being suspended: %q", said)
	}
}

// startInTheBackground runs a script under a supervisor that is not the terminal's foreground. Another
// process, which is the foreground, does what a shell would.
func startInTheBackground(t *testing.T, script string, f *fifo) (cmd *exec.Cmd, person *os.File, foreground func()) {
	t.Helper()
	// The shell starts the supervisor in a group of its own, in the background, and
	// brings it to the foreground when it reads a line from its third descriptor.
	order, give, err := os.Pipe()
	noErr(t, err)
	t.Cleanup(func() { order.Close(); give.Close() })
	cmd = exec.Command("sh", "-c", `set -m; "$0" supervisor "$1" "$2" "$3" 3<&- & read go <&3; fg >&2; exit $?`, os.Args[0], script, f.name, plenty.String())
	cmd.ExtraFiles = []*os.File{order}
	return cmd, onTerminal(t, cmd), func() {
		if _, err := io.WriteString(give, "go\n"); err != nil {
			t.Error(err)
		}
	}
}

// ends waits for a process, and returns its exit code.
func ends(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Error(err)
		}
	case <-time.After(bound):
		_ = cmd.Process.Kill()
		<-ended
		t.Error("it does not end")
	}
	return cmd.ProcessState.ExitCode()
}

// exits waits for a process, and checks its exit code.
func exits(t *testing.T, cmd *exec.Cmd, want int) {
	t.Helper()
	if got := ends(t, cmd); got != want {
		t.Errorf("it ended with %d, want %d", got, want)
	}
}

// A command that was started in the background can read when the shell has brought it to the foreground.
func TestBroughtToTheForeground(t *testing.T) {
	f := newFIFO(t)
	cmd, person, foreground := startInTheBackground(t, `exec 5>"$1"; echo $$ >&5; read line; echo "read $line" >&5; exit 6`, f)
	pid := must(strconv.Atoi(f.line(t)))(t)
	waitForState(t, pid, 'T') // as it reads in the background
	foreground()
	typed(t, person, "hello\n")
	f.says(t, "read hello")
	exits(t, cmd, 6)
}

// A signal that asks a stopped command to end also continues it, so that it takes the signal.
func TestInterruptOfAStoppedCommand(t *testing.T) {
	for _, s := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		f := newFIFO(t)
		p := start(t, shell(`exec 5>"$1"; echo ready >&5; kill -STOP $$; exit 3`, f.name))
		f.line(t)
		waitForState(t, p.pid, 'T')
		p.Signal(s)
		endsAs(t, p, Result{Code: 128 + int(s)})
	}
}

// A command that has changed the terminal's settings, and is killed, cannot set them back.
func TestTerminalIsSetBack(t *testing.T) {
	f := newFIFO(t)
	cmd, person, _ := startOnTerminal(t, `exec 5>"$1"; stty raw -echo; echo ready >&5; kill -KILL $$`, f)
	f.says(t, "ready")
	exits(t, cmd, 137)
	after := must(unix.IoctlGetTermios(int(person.Fd()), unix.TCGETS))(t)
	if want := uint32(unix.ECHO | unix.ICANON | unix.ISIG); after.Lflag&want != want {
		t.Errorf("the terminal is left raw: %x", after.Lflag)
	}
}

// A SIGTSTP for chubbyctl alone suspends it once: when the shell has brought it to the foreground again, the
// command is the foreground and goes on.
func TestSuspendedOnce(t *testing.T) {
	f := newFIFO(t)
	order, give, err := os.Pipe()
	noErr(t, err)
	defer order.Close()
	defer give.Close()
	listening := fmt.Sprintf(`exec '%s' listener "$1" read`, os.Args[0])
	cmd := exec.Command("sh", "-c", `set -m; "$0" supervisor "$1" "$2" "$3" 3<&-; read go <&3; fg >&2; exit $?`, os.Args[0], listening, f.name, plenty.String())
	cmd.ExtraFiles = []*os.File{order}
	person := onTerminal(t, cmd)
	guardian, _ := parentOf(number(t, f))
	chubbyctl, found := parentOf(guardian)
	if !found {
		t.Fatal("the guardian has no parent")
	}
	t.Cleanup(func() { _ = unix.Kill(chubbyctl, unix.SIGKILL) })
	noErr(t, unix.Kill(chubbyctl, unix.SIGTSTP))
	waitForState(t, chubbyctl, 'T')
	must(io.WriteString(give, "go\n"))(t)
	if err := unix.Kill(chubbyctl, unix.SIGUSR2); err != nil { // it is passed on when both are continued
		t.Fatal(err)
	}
	typed(t, person, "on\n")
	f.says(t, "read on")
	exits(t, cmd, 33)
}

// A command may have made another group the terminal's foreground, as a shell does for
// its jobs, and be killed with it. A caller of chubbyctl without job control could not
// read from the terminal any more.
func TestTerminalComesBackFromAJob(t *testing.T) {
	f, after := newFIFO(t), newFIFO(t)
	const shell = `set -m; exec 5>"$1"; sh -c 'echo $PPID >&5; stty raw -echo; echo set >&5; while :; do sleep 0.01; done'`
	cmd := exec.Command("sh", "-c", `"$0" supervisor "$1" "$2" "$3"; code=$?; exec 6>"$4"; echo "ended with $code" >&6; read line; echo "read $line" >&6`, os.Args[0], shell, f.name, plenty.String(), after.name)
	person := onTerminal(t, cmd)
	command := number(t, f)
	f.says(t, "set")
	noErr(t, unix.Kill(command, unix.SIGKILL))
	f.ended(t)
	after.says(t, "ended with 137")
	typed(t, person, "on\n")
	after.says(t, "read on")
}
