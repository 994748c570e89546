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

// terminal is the controlling terminal, whose foreground this process lends to the
// command whenever it has it: from the start, or when the shell brings it there (fg).
type terminal struct {
	file   *os.File
	group  int         // the process group to give the foreground back to
	before *term.State // how it was set when it was lent first; nil if it never was
	lent   bool        // to the command, and not taken back since
}

// openTerminal returns the controlling terminal if in is that, else nil.
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

// lend makes a process group the foreground, if this process's is it now: one that
// runs in the background must not take it.
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

// mend sets the terminal as it was before it was lent, for a command that was killed
// and could not (an editor, a prompt for a password). A shell would do it if this
// process were the one that was killed.
func (t *terminal) mend() error {
	if t.before == nil || !t.has(t.group) {
		return nil
	}
	if err := term.Restore(int(t.file.Fd()), t.before); err != nil {
		return fmt.Errorf("set the terminal as it was: %w", err)
	}
	return nil
}

// takeBack makes this process's group the foreground again, unless somebody
// else (the shell) has taken it from the command. A foreground that has ended is one
// that the command had made in turn, as a shell does of its jobs.
func (t *terminal) takeBack(from int) error {
	foreground, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	ended := t.lent && unix.Kill(-foreground, 0) == unix.ESRCH
	t.lent = false
	if err != nil || foreground != from && !ended {
		return err
	}
	return t.set(t.group)
}

// set changes the foreground. Asking for it from the background stops a
// process, unless it ignores SIGTTOU.
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
