//go:build unix

package supervise

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Interrupts are the signals by which people end a program.
func Interrupts() []os.Signal {
	return notIgnored(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
}

// Number returns the number of a signal, for exit codes of 128+n.
func Number(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}

// Listen keeps the signals that can be passed on from ending this process, and returns
// the channel on which they come. Start passes them to the command. Of those that came
// before Start, only interrupts are passed on: a command that has just begun is not
// prepared for others.
func Listen() chan os.Signal {
	c := make(chan os.Signal, 64)
	signal.Notify(c, slices.DeleteFunc(forwarded(), func(s os.Signal) bool { return s == unix.SIGTSTP || s == unix.SIGCONT })...)
	CatchBrokenPipes()
	return c
}

// CatchBrokenPipes has a write to a pipe that nobody reads any more be an error, EPIPE, and no end of this process by SIGPIPE:
// what it holds is given back then. What it starts has the default action of SIGPIPE. It returns the exit code of an end by SIGPIPE.
func CatchBrokenPipes() int {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	return 128 + int(unix.SIGPIPE)
}

// notForwarded are the signals that are not passed on to a command: two that no program
// gets, those by which the system reports a program's own faults, and those about this
// process's own children, pipes, use of the terminal and runtime.
func notForwarded() []syscall.Signal {
	return append([]syscall.Signal{
		unix.SIGKILL, unix.SIGSTOP,
		unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS,
		unix.SIGCHLD, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU, unix.SIGURG, unix.SIGPROF,
	}, notForwardedHere()...)
}

// forwarded are the signals that are passed on to a command: all others.
func forwarded() []os.Signal {
	var all []os.Signal
	for s := syscall.Signal(1); s <= lastSignal; s++ {
		if !slices.Contains(notForwarded(), s) {
			all = append(all, notIgnored(s)...)
		}
	}
	return all
}

// NotForwarded names the signals that a command does not get from this process,
// for people.
func NotForwarded() string {
	var names []string
	for _, s := range notForwarded() {
		if name := strings.TrimPrefix(unix.SignalName(s), "SIG"); name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(append(names, unnamed()), ", ")
}

// notIgnored leaves out the signals that this process was started to ignore (nohup, the
// background of a script): the command inherits that.
func notIgnored(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, func(s os.Signal) bool { return slices.Contains(inherited(), s) })
}

// inherited are the signals that this process was started to ignore, as far as Go tells: of most its runtime takes the place
// before it can be asked. Not of interrupts and hangups, and not of those of job control; and a shell that has its background
// ignore interrupts has it ignore SIGQUIT too, as POSIX says. It is asked first when nothing is changed yet.
var inherited = sync.OnceValue(func() []os.Signal {
	var all []os.Signal
	for _, s := range []syscall.Signal{unix.SIGHUP, unix.SIGINT} {
		if signal.Ignored(s) {
			all = append(all, s)
		}
	}
	if signal.Ignored(unix.SIGINT) {
		signal.Ignore(unix.SIGQUIT)
		all = append(all, unix.SIGQUIT)
	}
	for _, s := range []syscall.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		if isIgnored(s) {
			all = append(all, s)
		}
	}
	return all
})

// earlyInterrupts returns the interrupts among the signals that have come so far.
func earlyInterrupts(c <-chan os.Signal) []os.Signal {
	var kept []os.Signal
	for {
		select {
		case s := <-c:
			if slices.Contains(Interrupts(), s) {
				kept = append(kept, s)
			}
		default:
			return kept
		}
	}
}

// suspendSelf stops this process, whose pid is given, or with 0 all of its group, as Ctrl-Z
// would, until the shell continues it. Without a shell that could, because none with job
// control is above, it returns at once.
func suspendSelf(pid int) {
	if !continuable() {
		return
	}
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, unix.SIGCONT)
	defer signal.Stop(resumed)
	by, restore := stopSignal()
	defer restore()
	if err := unix.Kill(pid, by); err != nil {
		return
	}
	// The stop takes effect at a moment of the system's choosing, shortly.
	select {
	case <-resumed:
	case <-time.After(200 * time.Millisecond):
	}
}

// continuable reports whether this process's group has an ancestor outside the
// group and in its session: the shell that made the group and can continue it.
// A group without one is called orphaned, and Ctrl-Z does not stop it.
func continuable() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	for pid, found := unix.Getppid(), true; found; pid, found = parentOf(pid) {
		group, err := unix.Getpgid(pid)
		if err != nil {
			return false
		}
		if group != unix.Getpgrp() {
			theirs, err := unix.Getsid(pid)
			return err == nil && theirs == session
		}
	}
	return false
}

// ParseSignal reads the name of a signal, with or without SIG.
func ParseSignal(name string) (os.Signal, error) {
	upper := strings.ToUpper(name)
	if s := unix.SignalNum("SIG" + strings.TrimPrefix(upper, "SIG")); s != 0 {
		return s, nil
	}
	return nil, fmt.Errorf("%q is not a signal; want one as USR1", name)
}
