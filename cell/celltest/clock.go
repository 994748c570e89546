package celltest

import (
	"sync"
	"time"

	"github.com/chubbylock/chubby/session"
)

// Clock is the clock of a cell in a test. It is Go's clock, so that a synctest
// bubble controls it. Give it, or a ClockOf, to the clients of the cell.
func Clock() session.Instant { return session.Instant(time.Now().UnixNano()) }

// clocks keeps how the hosts' clocks differ from Clock and from the time of
// day.
type clocks struct {
	mu      sync.Mutex // guards the fields below
	ahead   map[string]time.Duration
	stopped map[string]session.Instant // the reading of a clock when its host was paused
	wall    map[string]time.Duration
}

func newClocks() *clocks {
	return &clocks{ahead: map[string]time.Duration{}, stopped: map[string]session.Instant{}, wall: map[string]time.Duration{}}
}

// read returns the reading of a host's clock.
func (c *clocks) read(host string) session.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, stopped := c.stopped[host]; stopped {
		return at
	}
	return Clock().Add(c.ahead[host])
}

// pause stops a host's clock; a stopped clock stays as it is.
func (c *clocks) pause(host string) {
	now := c.read(host)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped[host] = now
}

// resume sets a host's clock to what it would show without the pause.
func (c *clocks) resume(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stopped, host)
}

// ClockOf returns the clock of a host, for client.Config. It counts as Clock
// does, and Pause and Jump change it. Every replica has its own.
func (c *Cell) ClockOf(host string) session.Clock {
	return func() session.Instant { return c.clocks.read(host) }
}

// Jump sets the clock by which a host counts leases: that of a client that got
// ClockOf, or of a replica. Other clocks and timers do not change. It imitates
// a wrong clock; use Pause for a host that slept.
//
// After a jump forward, a client thinks that its lease has ended too early: in
// the worst case it loses its session. A master extends its clients' leases by
// the time that it seems to have slept, but ends lock-delays too early.
//
// A jump backward (by < 0) imitates a clock that stood still, or a virtual
// machine restored from a snapshot. A master then waits longer than it has to.
// A client relies on its lease for longer than it may, and only servers that
// check sequencers are safe from it: the promises hold only for clocks that
// differ in rate by at most 1 %.
func (c *Cell) Jump(host string, by time.Duration) {
	c.clocks.mu.Lock()
	defer c.clocks.mu.Unlock()
	c.clocks.ahead[host] += by
	if at, stopped := c.clocks.stopped[host]; stopped {
		c.clocks.stopped[host] = at.Add(by)
	}
}

// StepWall sets the time of day of a replica forward or back, as an operator
// does, or NTP after a start with a wrong clock. The only effect is on the
// "since" of what happens while that replica is the master.
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
