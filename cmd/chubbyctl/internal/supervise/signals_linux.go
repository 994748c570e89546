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

// stopSignal returns the signal with which this process stops itself, and a function to
// call when it goes on. The signal is SIGTSTP, so that a parent sees the terminal's stop
// and not a SIGSTOP. The Go runtime swallows a SIGTSTP that was once passed to
// signal.Notify, so the system's default action is set meanwhile, behind the runtime's
// back. A structure of zeros is the default action on every architecture.
func stopSignal() (s syscall.Signal, restore func()) {
	var byDefault, before [64]byte
	set := func(to, old *[64]byte) bool {
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGTSTP),
			uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(old)), 8, 0, 0) // 8 bytes of signals in a set
		return errno == 0
	}
	if !set(&byDefault, &before) {
		return unix.SIGSTOP, func() {}
	}
	return unix.SIGTSTP, func() { set(&before, &byDefault) }
}
