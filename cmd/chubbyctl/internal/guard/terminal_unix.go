//go:build unix

package guard

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, whose foreground this process has and
// lends to the command.
type terminal struct {
	file  *os.File
	group int // the process group to give the foreground back to
}

// openTerminal returns the terminal if in is one and this process is in its
// foreground, else nil: one that runs in the background must not take it.
func openTerminal(in *os.File) *terminal {
	fd := int(in.Fd())
	foreground, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	group := unix.Getpgrp()
	if err != nil || foreground != group {
		return nil
	}
	return &terminal{file: in, group: group}
}

// lent reports whether that process group is the foreground.
func (t *terminal) lent(group int) bool {
	foreground, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == group
}

// lend makes a process group the foreground, if this process's is it now.
func (t *terminal) lend(group int) error {
	foreground, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil || foreground != t.group {
		return err
	}
	return t.set(group)
}

// takeBack makes this process's group the foreground again, unless somebody
// else (the shell) has taken it from the command.
func (t *terminal) takeBack(from int) error {
	foreground, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil || foreground != from {
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
