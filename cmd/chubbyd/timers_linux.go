package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// defaultSlack is how late Linux may wake a sleeping thread, by default (systemd sets it by TimerSlackNSec=);
// slack is the replica's.
//
// Go's runtime has a thread that repeatedly sleeps for 20 microseconds while anything runs. A log entry is a
// millisecond of short work, so under load this thread uses a quarter of some replicas' processor time. A slack
// of half a millisecond saves a sixth of the processor time of an acquire and release. Timers are late by as
// much; the shortest take tens of milliseconds, and a lease that ends late at the master is safe.
const (
	defaultSlack = 50 * time.Microsecond
	slack        = 500 * time.Microsecond
)

// relaxTimers makes a replica's timers less exact, and cheaper. Threads inherit the slack of the thread that
// starts them, and the runtime has started its own already, so the program is started again in the same
// process. If that fails, the process goes on. Call it before anything is opened.
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
	_ = syscall.Exec(program, args, os.Environ()) // returns only on failure
}

// inheritsDefault reports whether this thread has the default slack. relaxTimers sets another, so the program
// does not restart forever.
func inheritsDefault() bool { return timerSlack() == defaultSlack }

func inheritsOurs() bool { return timerSlack() == slack }

// timerSlack returns this thread's slack; -1 if unknown.
func timerSlack() time.Duration {
	n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return -1
	}
	return time.Duration(n)
}
