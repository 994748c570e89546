//go:build unix && !linux

package supervise

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// lastSignal is the highest signal: these systems, or Go programs on them, have no real-time signals.
const lastSignal = syscall.Signal(31)

// notForwardedHere are this system's signals that Go programs do not get.
func notForwardedHere() []syscall.Signal { return []syscall.Signal{unix.SIGEMT} }

func unnamed() string { return "and SIGEMT" }

// stopSignal returns the signal with which this process stops itself, and a function to call when it goes on.
// The Go runtime swallows a SIGTSTP once passed to signal.Notify.
func stopSignal() (syscall.Signal, func()) { return unix.SIGSTOP, func() {} }

// isIgnored reports false: on these systems Go programs do not learn it.
func isIgnored(syscall.Signal) bool { return false }
