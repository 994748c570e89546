//go:build unix

package supervise

import "golang.org/x/sys/unix"

// now reads the clock of the orders, in nanoseconds. All processes of this machine read
// the same, and setting the time of day does not move it. On Linux and macOS it counts
// on in suspend.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(bootClock, &t); err != nil {
		panic(err) // every system that this file is built for has the clock
	}
	return t.Nano()
}
