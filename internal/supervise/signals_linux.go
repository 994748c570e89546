package supervise

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lastSignal is the highest real-time signal.
const lastSignal = syscall.Signal(64)

// notForwardedHere are the signals of this system that Go programs do not get: the three
// real-time signals belong to the C libraries.
func notForwardedHere() []syscall.Signal { return []syscall.Signal{unix.SIGSTKFLT, 32, 33, 34} }

// unnamed names, for people, those that the system has no name for.
func unnamed() string { return "and the first real-time signal (RTMIN, 34)" }

// action is what a program does on a signal, as the kernel has it. All zeros are the default action on every architecture.
type action [64]byte

// exchange sets the action of a signal behind the back of the Go runtime, unless to is nil, and returns the one before.
func exchange(s syscall.Signal, to *action) (before action, ok bool) {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(&before)), 8, 0, 0) // 8 bytes of signals in a set
	return before, errno == 0
}

// isIgnored reports whether this process ignores a signal. The handler comes first in an action, and SIG_IGN is 1. (On MIPS
// flags come first, and the answer is no.)
func isIgnored(s syscall.Signal) bool {
	a, ok := exchange(s, nil)
	return ok && *(*uintptr)(unsafe.Pointer(&a)) == 1
}

// stopSignal returns the signal with which this process stops itself, and a function to
// call when it goes on. The signal is SIGTSTP, so that a parent sees the terminal's stop
// and not a SIGSTOP. The Go runtime swallows a SIGTSTP that was once passed to
// signal.Notify, so the system's default action is set meanwhile.
func stopSignal() (s syscall.Signal, restore func()) {
	before, ok := exchange(unix.SIGTSTP, new(action))
	if !ok {
		return unix.SIGSTOP, func() {}
	}
	return unix.SIGTSTP, func() { exchange(unix.SIGTSTP, &before) }
}
