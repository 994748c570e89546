//go:build !(darwin || dragonfly || freebsd || linux || openbsd)

package bootclock

import "time"

// Now returns the time since this process was started, by Go's monotonic clock. On this
// system it may stop while the machine is suspended, and other processes read another time.
func Now() time.Duration { return time.Since(origin) }

var origin = time.Now()
