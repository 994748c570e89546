package frames

import "time"

// stopwatch is the clock of one connection. It is read for each frame, and decides only when to
// ask for a sign of life, and when a connection is given up; so it is Go's monotonic clock, which
// costs no system call, while the clock of leases (package bootclock) does. After a suspend, during
// which it may stand still, a connection that is dead is found so later by at most Times.Ping.
type stopwatch struct{ began time.Time }

func startStopwatch() stopwatch { return stopwatch{began: time.Now()} }

// read returns the time since the connection was made.
func (s stopwatch) read() time.Duration { return time.Since(s.began) }
