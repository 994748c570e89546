package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// drill is a command under a lock that another client waits for.
type drill struct {
	clinging
	path    string
	ctl     *process
	granted chan int64 // when the other client got the lock
}

// Of a drill. The lock of a chubbyctl that stops communicating passes on within the bound (design.md, decision 6).
const (
	drillLease = 3 * time.Second
	drillDelay = 6 * time.Second
	drillBound = drillLease + drillDelay + 2*time.Second
)

// newDrill starts a command that clings under a lock of its own, and a client that waits for the lock.
func newDrill(t *testing.T, spawn func(args ...string) *process, other *client.Client, path string, lease time.Duration, obey bool) *drill {
	t.Helper()
	c, argv := clinger(t, obey)
	d := &drill{clinging: c, path: path, granted: make(chan int64, 1)}
	flags := []string{"acquire", path, "--lease", lease.String(), "--lock-delay", drillDelay.String(), "--kill-after", "1s", "--"}
	d.ctl = spawn(append(flags, argv...)...)
	c.wait(30 * time.Second)
	d.contend(other)
	return d
}

// contend has another client wait for the lock.
func (d *drill) contend(other *client.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	var waits sync.WaitGroup
	d.t.Cleanup(func() {
		cancel()
		waits.Wait()
	})
	waits.Go(func() {
		h, err := other.Open(ctx, d.path, client.OpenOptions{Write: true})
		if err != nil {
			d.t.Error(err)
			return
		}
		l, err := h.Acquire(ctx, api.Exclusive)
		if err != nil {
			return // the test has ended
		}
		d.granted <- machineNow()
		<-ctx.Done()
		bound, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Release(bound)
	})
}

// passes waits until the lock has passed on, and checks that all processes of the command were gone
// by then. It returns how long before.
func (d *drill) passes(limit time.Duration) (spare time.Duration) {
	d.t.Helper()
	select {
	case at := <-d.granted:
		d.goneBy(at)
		return time.Duration(at - d.last())
	case <-time.After(patience(limit)):
		d.t.Fatalf("nobody else had %s within %v\nstderr: %s", d.path, limit, &d.ctl.stderr)
		return 0
	}
}

// islanders starts commands that cling, each under a lock of its own, on an island from which the cell is reached.
func islanders(t *testing.T, n int, lease time.Duration, obey bool) (*island, []*drill) {
	t.Helper()
	w := sharedWorld(t)
	i := newIsland(t, w)
	ctl := func(args ...string) *process {
		return i.spawn(bin("chubbyctl"), append([]string{"--servers", w.servers()}, args...)...)
	}
	drills := make([]*drill, n)
	var starts sync.WaitGroup
	for n := range drills {
		other := w.client(client.Config{})
		starts.Go(func() { drills[n] = newDrill(t, ctl, other, w.path(fmt.Sprint("drill", n)), lease, obey) })
	}
	starts.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return i, drills
}

// A client that is cut off from the cell: its command, which ignores SIGTERM and
// forks, is gone with all of its processes before another client can hold the lock, each time.
func TestLossDrill(t *testing.T) {
	besideOthers(t)
	if asRoot(t) {
		return
	}
	i, drills := islanders(t, 2**rounds, drillLease, false)
	i.cut()
	least := time.Hour
	for _, d := range drills {
		least = min(least, d.passes(time.Minute))
		d.ctl.exits(t, 30*time.Second, 74, d.path)
	}
	t.Logf("%d of %d gone before the lock passed on, the last of them %v before", len(drills), len(drills), least.Round(time.Millisecond))
}

// A cut of two seconds: the command never notices. Of a lease at least five twelfths are left
// at any time, so it is one of which those are more than the cut.
func TestShortCut(t *testing.T) {
	besideOthers(t)
	if asRoot(t) {
		return
	}
	i, drills := islanders(t, 5, api.DefaultLease, true)
	i.cut()
	time.Sleep(2 * time.Second)
	i.heal()
	time.Sleep(api.DefaultLease) // by then it would have run out
	for _, d := range drills {
		if heard := d.heard(); len(heard) > 0 || !d.ctl.running() || len(d.granted) > 0 {
			t.Errorf("%s: the command heard %q; stderr %s", d.path, heard, &d.ctl.stderr)
		}
	}
	for _, d := range drills {
		noErr(t, d.ctl.cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, d := range drills {
		d.ctl.exits(t, 30*time.Second, 0, d.path)
		d.passes(30 * time.Second)
	}
}

// goesOn continues a chubbyctl that was stopped while its lock passed on: it reports the loss at once.
func (d *drill) goesOn() {
	d.t.Helper()
	noErr(d.t, d.ctl.cmd.Process.Signal(syscall.SIGCONT))
	if code := d.ctl.wait(5 * time.Second); code != 74 || !strings.Contains(d.ctl.stderr.String(), "was lost while CMD ran") {
		d.t.Errorf("%s: exit %d after it went on, want 74 and that the lock was lost; stderr %s", d.path, code, &d.ctl.stderr)
	}
}

// Also if chubbyctl itself is killed or stopped, the command is gone before the lock passes on, and the
// lock passes on in time.
func TestSupervisorIsGone(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctl := func(args ...string) *process {
				return spawn(t, nil, bin("chubbyctl"), append([]string{"--servers", w.servers()}, args...)...)
			}
			d := newDrill(t, ctl, w.clientFor(t, client.Config{}), w.path(name), drillLease, false)
			t.Cleanup(func() { _ = d.ctl.cmd.Process.Signal(syscall.SIGCONT) })
			began := machineNow()
			noErr(t, d.ctl.cmd.Process.Signal(signal))
			spare := d.passes(drillBound)
			t.Logf("the last of the command was seen %v after, %v before the lock passed on",
				time.Duration(d.last()-began).Round(time.Millisecond), spare.Round(time.Millisecond))
			if signal == syscall.SIGSTOP {
				d.goesOn()
			}
		})
	}
}

// shell is an interactive bash on a terminal of its own.
type shell struct {
	*process
	terminal *terminal
}

// newShell starts a shell whose chubbyctl finds the cell.
func newShell(t *testing.T, w *world) *shell {
	t.Helper()
	term, process := onTerminal(t, "bash", "--norc", "--noprofile", "-i")
	s := &shell{process, term}
	s.types(fmt.Sprintf("PS1='[''%%] '; alias ctl='%s --servers %s'\n", bin("chubbyctl"), w.servers()))
	s.shows("[%] ", 20*time.Second)
	return s
}

// Ctrl-Z stops the command, and nobody renews the lock: it is gone before the
// lock passes on, although its shell still lists it as stopped.
func TestCtrlZ(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	s := newShell(t, w)
	ctl := func(args ...string) *process {
		for n := range args {
			args[n] = "'" + args[n] + "'"
		}
		s.types("ctl " + strings.Join(args, " ") + "\n")
		return s.process
	}
	d := newDrill(t, ctl, w.client(client.Config{}), w.path("z"), drillLease, false)
	s.types("\x1a")
	s.shows("Stopped", 20*time.Second)
	d.passes(time.Minute)
	s.types("fg\n") // chubbyctl is continued, and finds that the lock is lost
	s.shows("was lost while CMD ran", 30*time.Second)
	s.types("echo exit=$?\n")
	s.shows("exit=74", 30*time.Second)
}

// When the terminal is closed, the command ends, and then chubbyctl, which releases the lock.
func TestTerminalCloses(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	s := newShell(t, w)
	s.types("ctl acquire " + w.path("hup") + " -- sh -c 'echo run\"\"ning; exec sleep 600'\n")
	s.shows("running", 20*time.Second)
	s.terminal.close()
	w.must("acquire", w.path("hup"), "--wait", patience(5*time.Second).String(), "--", "true")
}

// acquire -- bash is a shell like any other: it reads what is typed, Ctrl-C ends what it runs and not
// the shell itself, Ctrl-Z and fg work, and its exit code is chubbyctl's.
func TestShellUnderALock(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	s := newShell(t, w)
	s.types("ctl acquire " + w.path("sh") + " -- bash --norc --noprofile -i; echo outer=$?\n")
	s.types("PS1='<''in> '\n")
	s.shows("<in> ", 20*time.Second)
	s.types("echo $((6*7)) token=$CHUBBY_TOKEN.\n")
	s.shows("42 token=", 10*time.Second)
	s.types("sh -c 'echo sleep\"\"ing; exec sleep 600'\n")
	s.shows("sleeping", 10*time.Second)
	s.types("\x03")
	s.shows("<in> ", 10*time.Second)
	s.types("sh -c 'echo sleep\"\"ing; exec sleep 600'\n")
	s.shows("sleeping", 10*time.Second)
	s.types("\x1a")
	s.shows("Stopped", 10*time.Second)
	s.shows("<in> ", 10*time.Second)
	s.types("kill -9 %1; fg; echo job$((1+2))\n") // wait does not wait for a job that is stopped, which it is until its end has been seen
	s.shows("job3", 10*time.Second)
	w.do("acquire", w.path("sh"), "--try", "--", "true").exits(t, 75, "the lock is not held")
	s.types("exit 9\n")
	s.shows("outer=9", 20*time.Second)
	w.must("acquire", w.path("sh"), "--try", "--", "true")
}

// terminal is a pseudo terminal at which a test types and reads.
type terminal struct {
	t     *testing.T
	file  *os.File
	shown buffer // what shows has not consumed yet
	all   buffer
	reads sync.WaitGroup
	once  sync.Once
}

// onTerminal starts a program on a terminal of 80 columns of its own.
func onTerminal(t *testing.T, name string, args ...string) (*terminal, *process) {
	t.Helper()
	term := &terminal{t: t}
	p := launch(t, command(name, args...), func(cmd *exec.Cmd) error {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, nil, nil // the terminal is all three
		cmd.Env = append(cmd.Env, "TERM=xterm", "PROMPT_COMMAND=", "HISTFILE=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
		if err != nil {
			return err
		}
		defer file.Close()
		// The library leaves the file in a mode in which Close does not end a Read.
		fd, err := unix.Dup(int(file.Fd()))
		if err != nil {
			return err
		}
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		term.file = os.NewFile(uintptr(fd), "terminal")
		return nil
	})
	term.reads.Go(func() { _, _ = io.Copy(io.MultiWriter(&term.shown, &term.all), term.file) }) // until it is closed, or nobody writes any more
	t.Cleanup(term.close)
	return term, p
}

// close hangs up.
func (t *terminal) close() {
	t.once.Do(func() {
		t.file.Close()
		t.reads.Wait()
	})
}

func (s *shell) types(text string) {
	s.t.Helper()
	must(s.terminal.file.WriteString(text))(s.t)
}

// shows waits until the terminal shows a text, after the last one that a test has waited for, and
// drops everything up to it. It waits with patience.
func (s *shell) shows(text string, limit time.Duration) {
	s.t.Helper()
	if comesTrue(limit, 5*time.Millisecond, func() bool { return s.terminal.shown.forget(text) }) {
		return
	}
	s.t.Fatalf("the terminal does not show %q; it showed:\n%s", text, strings.ReplaceAll(s.terminal.all.String(), "\r", ""))
}

// forget drops everything up to a text, if the text is there.
func (b *buffer) forget(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := bytes.Index(b.text.Bytes(), []byte(text))
	if n >= 0 {
		b.text.Next(n + len(text))
	}
	return n >= 0
}

// One Ctrl-C ends a command that waits for its input to be typed, and nothing is sent: there is no cell here.
func TestCtrlCWhileTyping(t *testing.T) {
	besideOthers(t)
	for _, command := range [][]string{{"put", "/ls/local/x"}, {"put", "/ls/local/x", "-"}, {"acl", "file", "put", "ops"}} {
		term, process := onTerminal(t, bin("chubbyctl"), command...)
		s := &shell{process, term}
		s.shows("Ctrl-D", 20*time.Second)
		s.types("half a line")
		s.types("\x03")
		if code := process.wait(10 * time.Second); code != 130 && code != -1 { // -1 is by the signal itself
			t.Errorf("%q: exit %d, want an end by Ctrl-C", command, code)
		}
	}
}
