package tenure

import (
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Budget is the time to stop CMD safely: nobody else gets the lock before lease and lock-delay have ended
// (Chubby §2.4, §2.8).
type Budget struct {
	Lease, LockDelay, KillAfter, Margin time.Duration
}

// Budget returns the budget under a lease. The margin has room for killing CMD and its descendants: that lists
// the machine's processes several times, because they may start others.
func (t Terms) Budget(lease time.Duration) Budget {
	return Budget{lease, t.LockDelay, t.KillAfter, max(client.Margin(lease, t.LockDelay), scansToKill*t.Scan)}
}

const scansToKill = 4

// exclusive is the minimum time without another holder: a lease is extended after 7/12 of it, and clocks may
// run at different rates.
func (b Budget) exclusive() time.Duration {
	return time.Duration(float64(b.Lease*5/12+b.LockDelay) * (1 - api.ClockRateBound))
}

// Outage is the longest silence of the cell that CMD survives.
func (b Budget) Outage() time.Duration { return b.exclusive() - b.KillAfter - b.Margin }

// Check rejects settings under which CMD could run beside another holder, or would stop without an outage.
func (b Budget) Check() error {
	if b.Outage() > 0 {
		return nil
	}
	return fmt.Errorf("with a lease of %v and a lock-delay of %v, nobody else can have the lock for %v at the worst moment; "+
		"CMD needs %v to be stopped (--kill-after) and a margin of %v: lower --kill-after, or raise --lease or --lock-delay",
		b.Lease, b.LockDelay, b.exclusive().Round(time.Millisecond), b.KillAfter, b.Margin.Round(time.Millisecond))
}

// String says which outage CMD survives.
func (b Budget) String() string {
	return fmt.Sprintf("CMD rides out an outage of the cell of %.1fs: "+
		"remaining lease %.1fs + lock-delay %v, less clock bound %.1fs, kill-after %v and margin %v",
		b.Outage().Seconds(), (b.Lease * 5 / 12).Seconds(), b.LockDelay,
		(b.Lease*5/12 + b.LockDelay - b.exclusive()).Seconds(), b.KillAfter, b.Margin.Round(time.Millisecond))
}

// Refresh is the interval of asking how long the lock is still ours.
func (b Budget) Refresh() time.Duration { return min(time.Second, b.Lease/12) }
