//go:build darwin || dragonfly || freebsd || linux || openbsd

package bootclock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock is the number of the clock that Now reads, for timers of the system. It is not declared on
// systems where each process reads a different clock.
const Clock = clock

// Now returns the time since the machine was started.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err) // every system that this file is built for has the clock
	}
	return time.Duration(t.Nano())
}
