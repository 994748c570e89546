//go:build unix

package guard

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Interrupts are the signals by which people end a program.
func Interrupts() []os.Signal {
	return heeded(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
}

// Number returns the number of a signal, for exit codes of 128+n.
func Number(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}

// Listen keeps every signal that is for a command, and not about job control,
// from ending this process, from now on. Start passes them to the command. One
// that came before Start is only kept if it is an interrupt, because a command
// is not prepared for others from its first moment.
func Listen() chan os.Signal {
	c := make(chan os.Signal, 64)
	signal.Notify(c, Interrupts()...)
	signal.Notify(c, heeded(unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGVTALRM, unix.SIGWINCH, unix.SIGIO)...)
	// A write to a closed pipe becomes an error of that write.
	signal.Notify(make(chan os.Signal, 1), heeded(unix.SIGPIPE)...)
	return c
}

// forwarded are the signals that a command gets in place of this process: all
// that other processes or the terminal send.
func forwarded() []os.Signal {
	return append(Interrupts(), heeded(unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGVTALRM,
		unix.SIGWINCH, unix.SIGIO, unix.SIGTSTP, unix.SIGCONT)...)
}

// heeded leaves out what this process was started to ignore (nohup, the
// background of a script): the command inherits that.
func heeded(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, signal.Ignored)
}

// early returns the interrupts among the signals that have come so far.
func early(c <-chan os.Signal) []os.Signal {
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

// suspendSelf stops this process's group, as Ctrl-Z would, until somebody
// continues it. Where nobody could, because no shell with job control is above,
// it returns at once. It is SIGSTOP that stops, because the Go runtime swallows
// a SIGTSTP that a program has once asked to be told of.
func suspendSelf() {
	if !continuable() {
		return
	}
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, unix.SIGCONT)
	defer signal.Stop(resumed)
	if err := unix.Kill(0, unix.SIGSTOP); err != nil {
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
