//go:build !linux

package cell

import (
	"time"

	"github.com/chubbylock/chubby/session"
)

// bootClock reads Go's monotonic clock, which on these systems may stop while
// the machine is suspended: a replica that was suspended then takes longer to
// end a session, never shorter.
func bootClock() session.Instant { return session.Instant(time.Since(origin)) }

var origin = time.Now()
