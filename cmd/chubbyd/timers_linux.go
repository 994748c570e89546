package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// defaultSlack is by how much Linux may wake a thread late that sleeps for a set time, unless somebody
// decides otherwise (systemd does by TimerSlackNSec=); slack is what a replica asks for.
//
// Go's runtime has a thread that sleeps for 20 microseconds again and again while anything runs. An entry of
// the log is a millisecond of short work, so under load this thread is all that some replicas do in a
// quarter of their processor time. With a slack of half a millisecond a pair of acquire and release takes a
// sixth less time of the processors. Timers of a replica are late by as much; the shortest of them are of tens of
// milliseconds, and a lease that ends late on the master's side is safe.
const (
	defaultSlack = 50 * time.Microsecond
	slack        = 500 * time.Microsecond
)

// relaxTimers makes the timers of a replica less exact, and cheaper. Threads have the slack of the thread that
// starts them, and the runtime has started its own already, so the program is started again, in the same
// process. If that is not possible, the process goes on as it is. It is to be called before anything has been opened.
func relaxTimers(args []string) {
	if len(args) < 2 || args[1] != "serve" && args[1] != "dev" || !inheritsDefault() {
		return
	}
	program, err := os.Executable()
	if err != nil {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0) != nil || !inheritsOurs() {
		return
	}
	_ = syscall.Exec(program, args, os.Environ()) // it returns only if it has failed
}

// inheritsDefault reports whether nobody has decided about the slack of this thread: then it is not what
// relaxTimers sets either, so the program is not started again and again.
func inheritsDefault() bool { return timerSlack() == defaultSlack }

func inheritsOurs() bool { return timerSlack() == slack }

// timerSlack returns that of this thread; -1 if it is not known.
func timerSlack() time.Duration {
	n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return -1
	}
	return time.Duration(n)
}
