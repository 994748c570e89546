package client

import (
	"time"

	"github.com/chubbylock/chubby/session"
	"golang.org/x/sys/unix"
)

// systemClock reads CLOCK_BOOTTIME, which counts on while the machine is
// suspended; Go's own monotonic clock stops, and a lease with it, while the
// cell's clocks do not. A kernel that has no such clock (none since 2.6.39)
// leaves us the monotonic one.
func systemClock() session.Clock {
	start := time.Now()
	return func() session.Instant {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			return session.Instant(time.Since(start))
		}
		return session.Instant(ts.Nano())
	}
}
