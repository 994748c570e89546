package frames

import "time"

// stopwatch is the clock of one connection. It is read for each frame, and decides only about pings and dead
// connections. So it is Go's monotonic clock, which needs no system call, unlike the clock of leases (package
// bootclock). It may stop during suspend, which delays detection by at most Times.Ping.
type stopwatch struct{ began time.Time }

func startStopwatch() stopwatch { return stopwatch{began: time.Now()} }

// read returns the connection's age.
func (s stopwatch) read() time.Duration { return time.Since(s.began) }
