package cell

import (
	"github.com/chubbylock/chubby/session"
	"golang.org/x/sys/unix"
)

// bootClock reads CLOCK_BOOTTIME. Go's own monotonic clock stops while a machine
// is suspended, and a lease that outlives its suspended holder's belief is one
// thing, but a belief that outlives the lease is another.
func bootClock() session.Instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux since 2.6.39 has it
	}
	return session.Instant(t.Nano())
}
