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

// terminal is the controlling terminal. This process lends the foreground to the command
// whenever it has the foreground: from the start, or when the shell brings it there (fg).
type terminal struct {
	file   *os.File
	group  int         // the process group to give the foreground back to
	before *term.State // its settings when it was lent first; nil if it never was
	lent   bool        // to the command, and not taken back since
}

// openTerminal returns the controlling terminal if in is it, else nil.
func openTerminal(in *os.File) *terminal {
	if _, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCGPGRP); err != nil {
		return nil
	}
	return &terminal{file: in, group: unix.Getpgrp()}
}

// has reports whether one of these process groups is the foreground.
func (t *terminal) has(groups ...int) bool {
	foreground, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	return err == nil && slices.Contains(groups, foreground)
}

// lend makes a process group the foreground, if the group of this process is it now: a
// program that runs in the background must not take the foreground.
func (t *terminal) lend(group int) error {
	foreground, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	t.lent = err == nil && (foreground == t.group || foreground == group)
	if err != nil || foreground != t.group {
		return err
	}
	if t.before == nil {
		if t.before, err = term.GetState(int(t.file.Fd())); err != nil {
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
	if err := term.Restore(int(t.file.Fd()), t.before); err != nil {
		return fmt.Errorf("set the terminal as it was: %w", err)
	}
	return nil
}

// takeBack makes the group of this process the foreground again, unless the shell has
// taken the foreground from the command. If the foreground is a group that has ended, the
// command had made it, as a shell does with its jobs.
func (t *terminal) takeBack(from int) error {
	foreground, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	ended := t.lent && unix.Kill(-foreground, 0) == unix.ESRCH
	t.lent = false
	if err != nil || foreground != from && !ended {
		return err
	}
	return t.set(t.group)
}

// set changes the foreground. The system stops a process that does it from the
// background, unless the process ignores SIGTTOU.
func (t *terminal) set(group int) error {
	if !signal.Ignored(unix.SIGTTOU) {
		signal.Ignore(unix.SIGTTOU)
		defer signal.Reset(unix.SIGTTOU)
	}
	err := unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group)
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EPERM) { // those say that the group is gone
		return fmt.Errorf("change the terminal's foreground: %w", err)
	}
	return nil
}
