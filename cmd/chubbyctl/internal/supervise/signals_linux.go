package supervise

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lastSignal is the highest real-time signal.
const lastSignal = syscall.Signal(64)

// notForwardedHere are those of this system that no Go program is told of: the
// three real-time signals are the C libraries' own.
func notForwardedHere() []syscall.Signal { return []syscall.Signal{unix.SIGSTKFLT, 32, 33, 34} }

// unnamed names those of them that have no name of the system's.
func unnamed() string { return "and the first real-time signal (RTMIN, 34)" }

// stopSignal returns the signal to stop this process with, and what to do when it
// goes on. The Go runtime swallows a SIGTSTP that a program has once asked to be
// told of, so its default action is put in place meanwhile, behind the runtime's
// back: a parent sees then that it was the terminal's stop and not somebody's
// SIGSTOP. A structure of zeros means the default action on every architecture.
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
