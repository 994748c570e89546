//go:build !linux

package client

import (
	"time"

	"github.com/chubbylock/chubby/session"
)

// systemClock reads Go's monotonic clock. Where it stops in suspend, a lease
// seems to last longer than it does once the machine wakes up; servers that
// check sequencers are the protection there.
func systemClock() session.Clock {
	start := time.Now()
	return func() session.Instant { return session.Instant(time.Since(start)) }
}
