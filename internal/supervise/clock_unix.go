//go:build unix

package supervise

import "github.com/chubbylock/chubby/internal/bootclock"

// clock is that of the orders. This file compiles only where chubbyctl and its guardian
// read the same one.
const clock = bootclock.Clock

// now reads that clock, in nanoseconds.
func now() int64 { return int64(bootclock.Now()) }
