//go:build unix && !linux

package supervise

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// lastSignal is the highest signal: these systems have no real-time ones, or
// Go is not told of them.
const lastSignal = syscall.Signal(31)

// notForwardedHere are those of this system that no Go program is told of.
func notForwardedHere() []syscall.Signal { return []syscall.Signal{unix.SIGEMT} }

// unnamed ends the list of their names.
func unnamed() string { return "and SIGEMT" }

// stopSignal returns the signal to stop this process with, and what to do when it
// goes on. The Go runtime swallows a SIGTSTP that a program has once asked to be
// told of.
func stopSignal() (syscall.Signal, func()) { return unix.SIGSTOP, func() {} }
