package supervise

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lastSignal is the highest real-time signal.
const lastSignal = syscall.Signal(64)

// notForwardedHere are this system's signals that Go programs do not get: the C libraries own three real-time
// signals.
func notForwardedHere() []syscall.Signal { return []syscall.Signal{unix.SIGSTKFLT, 32, 33, 34} }

func unnamed() string { return "and the first real-time signal (RTMIN, 34)" }

// action is the kernel's form of a signal's action. All zeros are the default on every architecture.
type action [64]byte

// exchange sets a signal's action behind the Go runtime, unless to is nil, and returns the old one.
func exchange(s syscall.Signal, to *action) (before action, ok bool) {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(&before)), 8, 0, 0) // 8 bytes of signals in a set
	return before, errno == 0
}

// isIgnored reports whether this process ignores a signal. The handler comes first in an action, and SIG_IGN is
// 1. (On MIPS flags come first: the answer is no.)
func isIgnored(s syscall.Signal) bool {
	a, ok := exchange(s, nil)
	return ok && *(*uintptr)(unsafe.Pointer(&a)) == 1
}

// stopSignal returns the signal with which this process stops itself, and a function to call when it goes on.
// It is SIGTSTP, so that a parent sees the terminal's stop. The Go runtime swallows a SIGTSTP once passed to
// signal.Notify, so stopSignal restores the default action meanwhile.
func stopSignal() (s syscall.Signal, restore func()) {
	before, ok := exchange(unix.SIGTSTP, new(action))
	if !ok {
		return unix.SIGSTOP, func() {}
	}
	return unix.SIGTSTP, func() { exchange(unix.SIGTSTP, &before) }
}
