//go:build unix

package supervise

import "github.com/chubbylock/chubby/internal/bootclock"

// clock is the orders' clock, on systems where chubbyctl and its guardian read the same one.
const clock = bootclock.Clock

// now reads clock, in nanoseconds.
func now() int64 { return int64(bootclock.Now()) }
