//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal. Its foreground belongs to whichever asks for it, the command or the process group of
// this process, in which there may be others of a pipeline: the system stops a process that asks from the background, and
// sends its group a signal for that. The foreground changes only between these two; the shell gives it to neither while
// chubbyctl is in the background.
type terminal struct {
	fd     int
	group  int            // the process group to give the foreground back to
	first  bool           // the command has the foreground before it asks: it reads and writes the terminal alone
	asked  chan os.Signal // what the system sends this group if one of it asks
	before *term.State    // its settings when it was lent first; nil if it never was
	lent   bool           // to the command, and not taken back since
}

// openTerminal returns the controlling terminal; nil if this process has none.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd, group: unix.Getpgrp(), asked: make(chan os.Signal, 1)}
	_, err = unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP) // fails for all but the controlling terminal
	t.first = err == nil && !isPipe(os.Stdout)
	t.listen()
	return t
}

// isPipe reports whether a file is a pipe, behind which there may be another process.
func isPipe(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

// listen keeps the signals for those who ask from stopping this process, which renews the lock.
func (t *terminal) listen() {
	for _, s := range notIgnored(unix.SIGTTIN, unix.SIGTTOU) {
		signal.Notify(t.asked, s)
	}
}

// close has this process, which only writes to the terminal, do that in the background, too.
func (t *terminal) close() {
	signal.Ignore(unix.SIGTTIN, unix.SIGTTOU) // to have the default action again, Go has no way
	unix.Close(t.fd)
}

// foreground returns the process group that is the foreground.
func (t *terminal) foreground() (int, error) { return unix.IoctlGetInt(t.fd, unix.TIOCGPGRP) }

// has reports whether one of these process groups is the foreground.
func (t *terminal) has(groups ...int) bool {
	foreground, err := t.foreground()
	return err == nil && slices.Contains(groups, foreground)
}

// lend makes a process group the foreground, if the group of this process is it now: a
// program that runs in the background must not take the foreground.
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

// restoreSettings sets the terminal as it was before it was lent. An editor or a prompt for
// a password that was killed could not do it. (If this process is killed, the shell does.)
func (t *terminal) restoreSettings() error {
	if t.before == nil || !t.has(t.group) {
		return nil
	}
	if err := term.Restore(t.fd, t.before); err != nil {
		return fmt.Errorf("set the terminal as it was: %w", err)
	}
	return nil
}

// takeBack makes the group of this process the foreground again, unless the shell has
// taken the foreground from the command. If the foreground is a group that has ended, the
// command had made it, as a shell does with its jobs.
func (t *terminal) takeBack(from int) error {
	foreground, err := t.foreground()
	ended := t.lent && unix.Kill(-foreground, 0) == unix.ESRCH
	t.lent = false
	if err != nil || foreground != from && !ended {
		return err
	}
	return t.set(t.group)
}

// giveBack is takeBack, and continues those of this group that the system has stopped because they asked.
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

// set changes the foreground. The system stops a process that does it from the
// background, unless the process ignores SIGTTOU.
func (t *terminal) set(group int) error {
	signal.Ignore(unix.SIGTTOU)
	defer t.listen()
	err := unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EPERM) { // those say that the group is gone
		return fmt.Errorf("change the terminal's foreground: %w", err)
	}
	return nil
}
