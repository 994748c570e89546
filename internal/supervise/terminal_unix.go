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
