package celltest

import (
	"sync"
	"time"

	"github.com/chubbylock/chubby/session"
)

// Clock is the clock of a cell in a test: Go's, so that a synctest bubble has
// it in hand. Clients of the cell are to be given it too, or a ClockOf.
func Clock() session.Instant { return session.Instant(time.Now().UnixNano()) }

// clocks are those of the hosts, as far as they differ from Clock and from the
// time of day.
type clocks struct {
	mu      sync.Mutex // guards the fields below
	ahead   map[string]time.Duration
	stopped map[string]session.Instant // what a clock showed when its host was paused
	wall    map[string]time.Duration
}

func newClocks() *clocks {
	return &clocks{ahead: map[string]time.Duration{}, stopped: map[string]session.Instant{}, wall: map[string]time.Duration{}}
}

// read returns what a host's clock shows.
func (c *clocks) read(host string) session.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, stopped := c.stopped[host]; stopped {
		return at
	}
	return Clock().Add(c.ahead[host])
}

// pause makes a host's clock stand still; one that does goes on doing so.
func (c *clocks) pause(host string) {
	now := c.read(host)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped[host] = now
}

// resume makes it show again what it would have.
func (c *clocks) resume(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stopped, host)
}

// ClockOf returns the clock of a host, for client.Config: it counts as Clock
// does, but Pause and Jump reach it. Every replica has its own.
func (c *Cell) ClockOf(host string) session.Clock {
	return func() session.Instant { return c.clocks.read(host) }
}

// Jump sets the clock that leases are measured by on a host: a client's that was
// given ClockOf, or a replica's. Nobody else's clock moves, nor do timers. It
// imitates a clock that is wrong; for a host that slept there is Pause.
//
// Forward, a client believes that its time is over when the others know that it
// is not: that costs its session at worst. A master gives its clients the time
// back that it believes to have slept, but ends lock-delays too early.
//
// Backward (by < 0) it imitates a clock that stood still, or a virtual machine
// that is restored from a snapshot. A master then waits longer than it has to. A
// client believes for longer than it may in what it has, and only servers that
// check sequencers are safe from it: this is beyond what is promised, as no two
// clocks may differ in rate by more than 1 %.
func (c *Cell) Jump(host string, by time.Duration) {
	c.clocks.mu.Lock()
	defer c.clocks.mu.Unlock()
	c.clocks.ahead[host] += by
	if at, stopped := c.clocks.stopped[host]; stopped {
		c.clocks.stopped[host] = at.Add(by)
	}
}

// StepWall sets the time of day of a replica forward or back, as an operator
// does, or NTP after a start with a wrong clock. It shows in the "since" of
// what happens while that replica is the master, and nowhere else.
func (c *Cell) StepWall(id string, by time.Duration) {
	c.clocks.mu.Lock()
	defer c.clocks.mu.Unlock()
	c.clocks.wall[id] += by
}

// wallOf returns the time of day of a replica, for cell.Config.
func (c *Cell) wallOf(id string) func() int64 {
	return func() int64 {
		c.clocks.mu.Lock()
		defer c.clocks.mu.Unlock()
		return time.Now().Add(c.clocks.wall[id]).Unix()
	}
}
