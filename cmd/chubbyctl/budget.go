package main

import (
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// budget is what CMD's safety is made of (Chubby §2.8 and the rule that a lock
// is nobody else's before lease and lock-delay are over).
type budget struct {
	lease, lockDelay, killAfter, margin time.Duration
}

// The margin has room for killing CMD and everything it started: finding them
// all takes a look at every process of the machine, and it is done several times,
// since processes may start others meanwhile.
func (o *workOptions) budget(lease time.Duration) budget {
	return budget{lease, o.lockDelay, o.killAfter, max(client.Margin(lease, o.lockDelay), scansToKill*o.scan)}
}

const scansToKill = 4

// exclusive is how long nobody else can have the lock at the worst moment: a
// lease is extended when 7/12 of it are over, and clocks may differ in rate.
func (b budget) exclusive() time.Duration {
	return time.Duration(float64(b.lease*5/12+b.lockDelay) * (1 - api.ClockRateBound))
}

// outage is the longest silence of the cell that CMD does not notice.
func (b budget) outage() time.Duration { return b.exclusive() - b.killAfter - b.margin }

// validate refuses settings under which CMD could outlive its exclusivity, or
// would be stopped before any outage.
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

// refresh is how often to look how long the lock is still ours.
func (b budget) refresh() time.Duration { return min(time.Second, b.lease/12) }
