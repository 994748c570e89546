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

// Interrupts are the signals with which people end a program.
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

// Listen prevents forwardable signals from ending this process, and returns their channel. Start passes them to
// the command; of earlier ones only interrupts, because a new command is not prepared for others.
func Listen() chan os.Signal {
	c := make(chan os.Signal, 64)
	signal.Notify(c, slices.DeleteFunc(forwarded(), func(s os.Signal) bool { return s == unix.SIGTSTP || s == unix.SIGCONT })...)
	CatchBrokenPipes()
	return c
}

// CatchBrokenPipes turns SIGPIPE into the error EPIPE of a write, so that this process can give up what it
// holds. Its children keep the default action. It returns the exit code of an end by SIGPIPE.
func CatchBrokenPipes() int {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	return 128 + int(unix.SIGPIPE)
}

// notForwarded are the signals that a command does not get: two that no program gets, reports of a program's
// own faults, and those about this process's children, pipes, terminal use and runtime.
func notForwarded() []syscall.Signal {
	return append([]syscall.Signal{
		unix.SIGKILL, unix.SIGSTOP,
		unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS,
		unix.SIGCHLD, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU, unix.SIGURG, unix.SIGPROF,
	}, notForwardedHere()...)
}

// forwarded are the signals that a command gets: all others.
func forwarded() []os.Signal {
	var all []os.Signal
	for s := syscall.Signal(1); s <= lastSignal; s++ {
		if !slices.Contains(notForwarded(), s) {
			all = append(all, notIgnored(s)...)
		}
	}
	return all
}

// NotForwarded names the signals that a command does not get from this process, for people.
func NotForwarded() string {
	var names []string
	for _, s := range notForwarded() {
		if name := strings.TrimPrefix(unix.SignalName(s), "SIG"); name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(append(names, unnamed()), ", ")
}

// notIgnored omits signals that this process was started to ignore (nohup, a script's background): the command
// inherits that.
func notIgnored(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, func(s os.Signal) bool { return slices.Contains(inherited(), s) })
}

// inherited are the signals that this process was started to ignore, as far as Go knows: its runtime takes over
// all but interrupts, hangups and job control. A shell whose background ignores interrupts makes it ignore
// SIGQUIT too, as POSIX says. The first call has to come before any change.
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

// suspendSelf stops this process (pid), or with 0 its group, like Ctrl-Z, until the shell continues it. Without
// a job-control shell above, it returns at once.
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
	// The system delivers the stop shortly, at a time of its own.
	select {
	case <-resumed:
	case <-time.After(200 * time.Millisecond):
	}
}

// continuable reports whether this process's group has an ancestor outside it in its session: the shell that
// can continue it. Ctrl-Z does not stop a group without one, an orphaned group.
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

// ParseSignal reads a signal's name, with or without SIG.
func ParseSignal(name string) (os.Signal, error) {
	upper := strings.ToUpper(name)
	if s := unix.SignalNum("SIG" + strings.TrimPrefix(upper, "SIG")); s != 0 {
		return s, nil
	}
	return nil, fmt.Errorf("%q is not a signal; want one as USR1", name)
}
