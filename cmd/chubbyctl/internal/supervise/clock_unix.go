//go:build unix

package supervise

import "golang.org/x/sys/unix"

// now reads the clock in which orders are given: nanoseconds that every process
// of this machine counts alike, whatever happens to the time of day. On Linux
// and macOS it counts on in suspend.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(bootClock, &t); err != nil {
		panic(err) // the system has this clock, or the program was built for another
	}
	return t.Nano()
}
