package supervise

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Every signal that a program can get, and that is not about this process itself, reaches the command; real-time
// signals too.
func TestEverySignalIsPassedOn(t *testing.T) {
	f := newFIFO(t)
	var script strings.Builder
	var signals []syscall.Signal
	for _, s := range forwarded() {
		n := syscall.Signal(Number(s))
		if n != unix.SIGTSTP && n != unix.SIGCONT { // they are about job control
			signals = append(signals, n)
			fmt.Fprintf(&script, "trap 'echo %d >&5' %d; ", n, n)
		}
	}
	if !slices.Contains(signals, 64) || !slices.Contains(signals, unix.SIGXCPU) {
		t.Errorf("signals that are passed on: %v", signals)
	}
	cmd := startSupervisor(t, `exec 5>"$1"; `+script.String()+`echo ready >&5; while :; do sleep 0.01; done`, f, plenty)
	f.line(t)
	for _, s := range signals {
		noErr(t, cmd.Process.Signal(s))
		f.says(t, fmt.Sprint(int(s)))
	}
}

// NotForwarded names exactly the signals that are not passed on.
func TestNotForwarded(t *testing.T) {
	names := strings.Split(NotForwarded(), ", ")
	for _, s := range forwarded() {
		if name := unix.SignalName(s.(syscall.Signal)); slices.Contains(names, strings.TrimPrefix(name, "SIG")) {
			t.Errorf("%s is passed on", name)
		}
	}
	for _, name := range []string{"KILL", "STOP", "CHLD", "STKFLT"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among %v", name, names)
		}
	}
}

func stateOf(t *testing.T, pid int) byte {
	t.Helper()
	stat := must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t)
	return stat[bytes.LastIndexByte(stat, ')')+2]
}

func waitForState(t *testing.T, pid int, want byte) {
	t.Helper()
	for end := time.Now().Add(bound); stateOf(t, pid) != want; {
		if time.Now().After(end) {
			t.Fatalf("process %d is in state %c, want %c", pid, stateOf(t, pid), want)
		}
	}
}

// A SIGTSTP for one process stops that process and its command, and not the script that runs it in the same process
// group.
func TestStopOfOneProcess(t *testing.T) {
	f, pid := newFIFO(t), newFIFO(t)
	listening := fmt.Sprintf(`exec '%s' listener "$1"`, os.Args[0])
	script := exec.Command("/bin/sh", "-c", `"$@" & echo $! >"$0"; wait $!`, pid.name,
		os.Args[0], "supervisor", listening, f.name, plenty.String())
	script.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // this process is the shell that could continue it
	noErr(t, script.Start())
	t.Cleanup(func() { _ = unix.Kill(-script.Process.Pid, unix.SIGKILL) })
	supervisor, command := number(t, pid), number(t, f)
	noErr(t, unix.Kill(supervisor, unix.SIGTSTP))
	waitForState(t, supervisor, 'T')
	waitForState(t, command, 'T')
	if got := stateOf(t, script.Process.Pid); got == 'T' {
		t.Fatal("the script was stopped too")
	}
	for _, s := range []syscall.Signal{unix.SIGCONT, unix.SIGUSR2} {
		noErr(t, unix.Kill(supervisor, s))
	}
	exits(t, script, 33)
}

// listener is a command that writes its pid, waits for a SIGUSR2, reads as many lines as there are names for them, writes
// them, and ends with 33. A shell does not fit: if it gets a signal just before it reads, it runs its trap only after it has
// read.
func listener(fifo string, names ...string) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGUSR2)
	said, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer said.Close()
	fmt.Fprintln(said, os.Getpid())
	<-asked
	for _, name := range names {
		var line string
		if _, err := fmt.Scanln(&line); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Fprintln(said, name, line)
	}
	return 33
}

// number reads a line that is a number.
func number(t *testing.T, f *fifo) int {
	t.Helper()
	var n int
	must(fmt.Sscan(f.line(t), &n))(t)
	return n
}

// A SIGSTOP of the command by another program (a debugger, a processor limit) does not suspend chubbyctl: the lock would
// run out.
func TestForeignStopDoesNotSuspend(t *testing.T) {
	f := newFIFO(t)
	cmd, person, said := startOnTerminal(t, `exec 5>"$1"; read line; echo $$ >&5; read line; echo "read $line" >&5; exit 4`, f)
	typed(t, person, "the terminal is the command's\n")
	command := number(t, f)
	noErr(t, unix.Kill(command, unix.SIGSTOP))
	waitForState(t, command, 'T')
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(time.Second); time.Now().Before(end) && !strings.Contains(said.String(), "suspended"); {
		<-look.C // the guardian sees the stop
	}
	noErr(t, unix.Kill(command, unix.SIGCONT))
	typed(t, person, "on\n")
	f.says(t, "read on")
	exits(t, cmd, 4)
	if strings.Contains(said.String(), "suspended") {
		t.Errorf("chubbyctl was suspended: %s", said)
	}
}

// The command ignores the signals that its caller ignores, and no others, as far as Go knows them.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	for ignored, want := range map[string]string{
		"":                     "0000000000000000",
		"HUP":                  "0000000000000001",
		"INT QUIT":             "0000000000000006",
		"INT":                  "0000000000000006", // it is taken for the background of a script
		"TSTP TTIN TTOU":       "0000000000380000",
		"HUP INT QUIT TSTP":    "0000000000080007",
		"INT QUIT TTIN TTOU":   "0000000000300006",
		"HUP INT QUIT PIPE 64": "0000000000000007",
	} {
		f := newFIFO(t)
		script := `exec 5>"$1"; grep SigIgn /proc/self/status >&5`
		line := `"$0" supervisor "$1" "$2" "$3"`
		if ignored != "" {
			line = "trap '' " + ignored + "; " + line
		}
		cmd := exec.Command("bash", "-c", line, os.Args[0], script, f.name, plenty.String())
		cmd.Stderr = os.Stderr
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		noErr(t, cmd.Start())
		got := f.line(t) // the signals from 32 on are those of C libraries, and as the caller of this test has them
		if ignores, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(got, "SigIgn:")), 16, 64); err != nil || fmt.Sprintf("%016x", ignores&(1<<31-1)) != want {
			t.Errorf("the caller ignores %q: the command has %q, want %s", ignored, got, want)
		}
		exits(t, cmd, 0)
	}
}

// Signals that a terminal would send go to the whole process group, so that a
// child of a shell is not left behind (Consul #2999).
func TestSignalsReachTheGroup(t *testing.T) {
	f := newFIFO(t)
	p := start(t, shell(`exec 5>"$1"; trap 'wait; exit 9' TERM
		sh -c 'trap "echo child >&5; exit" TERM; echo ready >&5; while :; do sleep 0.01; done' &
		wait`, f.name))
	f.says(t, "ready")
	p.Signal(unix.SIGTERM)
	f.says(t, "child")
	endsAs(t, p, Result{Code: 9})
}

// Other signals go to the command alone: its children may not expect them.
func TestOtherSignalsReachTheCommandAlone(t *testing.T) {
	f := newFIFO(t)
	p := start(t, shell(`exec 5>"$1"; trap 'echo right >&5' USR1; trap 'exit 4' USR2
		sh -c 'trap "echo wrong >&5" USR1; trap "exit" TERM; echo ready >&5; while :; do sleep 0.01; done' &
		while :; do wait; done`, f.name))
	f.line(t)
	p.Signal(unix.SIGUSR1)
	f.says(t, "right")
	p.Signal(unix.SIGUSR2) // not SIGHUP, which a shell cannot trap if this test runs under nohup
	endsAs(t, p, Result{Code: 4})
}

// An interrupt that came before the start is passed on to the command; another signal is not, because a command that has
// just begun is not prepared for it.
func TestSignalsBeforeTheStart(t *testing.T) {
	signals := make(chan os.Signal, 2)
	signals <- unix.SIGUSR1
	signals <- unix.SIGTERM
	p := must(Start(shell("sleep 1000"), signals))(t)
	t.Cleanup(p.Stop)
	endsAs(t, p, Result{Code: 143})
}

// A stopped process takes no signal but SIGKILL, until it is continued.
func TestSuspendedCommandIsStopped(t *testing.T) {
	f := newFIFO(t)
	c := shell(`exec 5>"$1"; trap 'echo asked >&5; exit 6' TERM; echo $$ >&5; kill -STOP $$; while :; do sleep 0.01; done`, f.name)
	c.KillAfter = bound
	p := start(t, c)
	f.line(t)
	p.Stop()
	endsAs(t, p, Result{Code: 6, Cut: true})
}

// startPipeline runs a pipeline in the foreground of a terminal, as an interactive shell does. In the line, "$0" supervisor "$1"
// "$2" "$3" runs the script under a supervisor, and "$4" is the name of the fifo. A script that is to be ended by Ctrl-C execs
// its last command: a child of the shell that has not called exec yet would lose the signal.
func startPipeline(t *testing.T, line, script string, f *fifo) (cmd *exec.Cmd, person *os.File) {
	t.Helper()
	cmd = exec.Command("bash", "-c", "set -m; "+line, os.Args[0], script, f.name, plenty.String(), f.name)
	return cmd, onTerminal(t, cmd)
}

// A command whose standard input is a pipe asks at the terminal, as psql and ssh do for a password.
func TestCommandAsksBesideAPipe(t *testing.T) {
	f := newFIFO(t)
	cmd, person := startPipeline(t, `echo payload | "$0" supervisor "$1" "$2" "$3"; exit $?`,
		`exec 5>"$1"; read password </dev/tty; read input; echo "$password $input" >&5; exit 6`, f)
	typed(t, person, "secret\n")
	f.says(t, "secret payload")
	exits(t, cmd, 6)
}

// The next of a pipeline asks at the terminal, as sudo and less do.
func TestPipelineAsks(t *testing.T) {
	f := newFIFO(t)
	cmd, person := startPipeline(t, `"$0" supervisor "$1" "$2" "$3" | { exec 5>"$4"; read password </dev/tty; read input; echo "$password $input" >&5; exit 7; }; exit $?`,
		`echo made`, f)
	typed(t, person, "secret\n")
	f.says(t, "secret made")
	exits(t, cmd, 7)
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
		f.says(t, want)
	}
	typed(t, person, "\x03") // for all of the pipeline
	exits(t, cmd, 0)
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
	f.says(t, "read on")
	typed(t, person, "\x03")
	ends(t, cmd)
	f.ended(t)
}
