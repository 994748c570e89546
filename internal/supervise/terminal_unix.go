//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal. Its foreground goes to the command or this process's group, which may
// be a pipeline, whichever asks: the system stops a process that asks from the background, and signals its
// group. While chubbyctl is in the background, the shell gives the foreground to neither.
type terminal struct {
	fd     int
	group  int            // the process group to return the foreground to
	first  bool           // the command gets the foreground without asking: it alone uses the terminal
	asked  chan os.Signal // the system's signals when one of this group asks
	before *term.State    // its settings when first lent; nil before
	lent   bool           // to the command, and not taken back
}

// openTerminal returns the controlling terminal, or nil.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd, group: unix.Getpgrp(), asked: make(chan os.Signal, 1)}
	_, err = unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP) // fails except for the controlling terminal
	t.first = err == nil && !isPipe(os.Stdout)
	t.listen()
	return t
}

// isPipe reports whether a file is a pipe, perhaps to another process.
func isPipe(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

// listen keeps requests' signals from stopping this process, which renews the lock.
func (t *terminal) listen() {
	for _, s := range notIgnored(unix.SIGTTIN, unix.SIGTTOU) {
		signal.Notify(t.asked, s)
	}
}

// close lets this process, which only writes to the terminal, do so from the background, too.
func (t *terminal) close() {
	signal.Ignore(unix.SIGTTIN, unix.SIGTTOU) // Go cannot restore the default action
	unix.Close(t.fd)
}

func (t *terminal) foreground() (int, error) { return unix.IoctlGetInt(t.fd, unix.TIOCGPGRP) }

func (t *terminal) has(groups ...int) bool {
	foreground, err := t.foreground()
	return err == nil && slices.Contains(groups, foreground)
}

// lend gives a process group the foreground, if this process's group has it: a background program must not take
// it.
func (t *terminal) lend(group int) error {
	foreground, err := t.foreground()
	t.lent = err == nil && (foreground == t.group || foreground == group)
	if err != nil || foreground != t.group {
		return err
	}
	if t.before == nil {
		if t.before, err = term.GetState(t.fd); err != nil {
			return fmt.Errorf("read how the terminal is set: %w", err)
		}
	}
	return t.set(group)
}

// restoreSettings restores the terminal's settings from before it was lent, for example after a killed editor
// or password prompt.
func (t *terminal) restoreSettings() error {
	if t.before == nil || !t.has(t.group) {
		return nil
	}
	if err := term.Restore(t.fd, t.before); err != nil {
		return fmt.Errorf("set the terminal as it was: %w", err)
	}
	return nil
}

// takeBack returns the foreground to this process's group, unless the shell has taken it from the command. A
// foreground group that has ended was the command's own, as with a shell's jobs.
func (t *terminal) takeBack(from int) error {
	foreground, err := t.foreground()
	ended := t.lent && unix.Kill(-foreground, 0) == unix.ESRCH
	t.lent = false
	if err != nil || foreground != from && !ended {
		return err
	}
	return t.set(t.group)
}

// giveBack is takeBack, and continues processes of this group that the system stopped for asking.
func (t *terminal) giveBack(from int) error {
	if !t.lent {
		return t.takeBack(from)
	}
	if err := t.takeBack(from); err != nil {
		return err
	}
	if !t.has(t.group) {
		t.lent = true // a job of the command has it
		return nil
	}
	return unix.Kill(0, unix.SIGCONT)
}

// set changes the foreground. The system stops a background process for that, unless it ignores SIGTTOU.
func (t *terminal) set(group int) error {
	signal.Ignore(unix.SIGTTOU)
	defer t.listen()
	err := unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EPERM) { // those mean that the group is gone
		return fmt.Errorf("change the terminal's foreground: %w", err)
	}
	return nil
}

// forwardSignal passes a signal on to the command. The terminal's stop also stops this process.
func (p *Process) forwardSignal(s os.Signal) {
	p.control.give(order{Signal: Number(s)})
	if s == unix.SIGTSTP {
		p.suspend(os.Getpid(), p.terminal != nil && p.pid != 0 && (p.terminal.first || p.terminal.lent))
	}
}

// lendTerminal gives the command the foreground. If an earlier read has stopped it, the report of that
// continues it.
func (p *Process) lendTerminal() {
	if err := p.terminal.lend(p.pid); err != nil {
		p.announcer.add(err.Error())
	}
}

// continueStarved continues a command that the system stopped for using the terminal from the background, if it
// can have the terminal now, and reports that. It is polled: a shell does not always send a signal with the
// foreground.
func (p *Process) continueStarved() bool {
	if !p.starved || p.terminal == nil || !p.terminal.has(p.pid, p.terminal.group) {
		return false
	}
	p.starved = false
	p.lendTerminal()
	p.control.give(order{Signal: int(unix.SIGCONT)})
	return true
}

// suspendToo stops this process after Ctrl-Z has stopped the command. It returns when the shell continues this
// process.
func (p *Process) suspendToo() {
	if err := p.terminal.takeBack(p.pid); err != nil {
		p.announcer.add(err.Error())
	}
	p.suspend(0, true) // all of a pipeline, which the terminal would have stopped too
}

// suspend stops this process (pid), or with 0 its group, until the shell continues it. Then it continues the
// command, and lends it the terminal again if it had it.
func (p *Process) suspend(pid int, lend bool) {
	left := time.Duration(p.deadline.told - now()).Round(time.Second)
	p.announcer.addAndWait(fmt.Sprintf("suspended, and nobody renews the lock now: CMD is killed in %v unless it is continued", left))
	suspendSelf(pid)
	if lend {
		p.lendTerminal()
	}
	p.control.give(order{Signal: int(unix.SIGCONT)})
}

// yieldTerminal gives the terminal to a process of this group, such as the next of a pipeline, that the system
// stopped for asking. If this group lacks it too, this process stops, as the system would have done.
func (p *Process) yieldTerminal() {
	var err error
	switch {
	case p.terminal.lent:
		err = p.terminal.giveBack(p.pid)
	case p.terminal.has(p.terminal.group): // it has it by now
		err = unix.Kill(0, unix.SIGCONT)
	default:
		suspendSelf(os.Getpid())
	}
	if err != nil {
		p.announcer.add(err.Error())
	}
}
