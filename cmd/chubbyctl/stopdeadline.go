package main

import (
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// budget is the time in which CMD can be stopped safely: nobody else can have the lock before
// lease and lock-delay have ended (Chubby §2.4, §2.8).
type budget struct {
	lease, lockDelay, killAfter, margin time.Duration
}

// budget returns the budget under a lease. The margin has room for killing CMD and everything
// that it started: that lists every process of the machine, several times, because processes
// may start others meanwhile.
func (o *workOptions) budget(lease time.Duration) budget {
	return budget{lease, o.lockDelay, o.killAfter, max(client.Margin(lease, o.lockDelay), scansToKill*o.scan)}
}

const scansToKill = 4

// exclusive is how long nobody else can have the lock at the worst moment: a lease is extended
// when 7/12 of it have passed, and clocks may run at different rates.
func (b budget) exclusive() time.Duration {
	return time.Duration(float64(b.lease*5/12+b.lockDelay) * (1 - api.ClockRateBound))
}

// outage is the longest silence of the cell that CMD does not notice.
func (b budget) outage() time.Duration { return b.exclusive() - b.killAfter - b.margin }

// validate refuses settings under which CMD could run while another has the lock, or would be
// stopped without any outage.
func (b budget) validate(verb string) error {
	if b.outage() > 0 {
		return nil
	}
	return usagef("%s: with a lease of %v and a lock-delay of %v, nobody else can have the lock for %v at the worst moment; "+
		"CMD needs %v to be stopped (--kill-after) and a margin of %v: lower --kill-after, or raise --lease or --lock-delay",
		verb, b.lease, b.lockDelay, b.exclusive().Round(time.Millisecond), b.killAfter, b.margin.Round(time.Millisecond))
}

func (b budget) String() string {
	return fmt.Sprintf("CMD rides out an outage of the cell of %.1fs: remaining lease %.1fs + lock-delay %v, less clock bound %.1fs, kill-after %v and margin %v",
		b.outage().Seconds(), (b.lease * 5 / 12).Seconds(), b.lockDelay,
		(b.lease*5/12 + b.lockDelay - b.exclusive()).Seconds(), b.killAfter, b.margin.Round(time.Millisecond))
}

// refresh is how often to ask for how long the lock is still ours.
func (b budget) refresh() time.Duration { return min(time.Second, b.lease/12) }
