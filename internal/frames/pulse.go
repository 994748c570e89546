package frames

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Times are how long a side waits for the other.
type Times struct {
	Ping    time.Duration // after this silence the other end gets a ping
	Timeout time.Duration // after this further silence the connection is closed
	Idle    time.Duration // a connection without calls for this long is closed
}

var errSilent = errors.New("the other end is silent")

// pulse supervises a connection. Its timer runs to the next moment with possible work; calls and frames do not
// touch it.
type pulse struct {
	clock stopwatch
	times Times
	since *atomic.Int64 // outlet's
	ping  func()        // sends a ping
	idle  func()        // called after long enough without calls
	dead  func(error)   // called when the other end is gone

	heard atomic.Int64 // the last arrival, by clock
	calls atomic.Int64 // open ones
	freed atomic.Int64 // the end of the last one, by clock

	mu      sync.Mutex // guards what follows
	timer   *time.Timer
	asked   time.Duration // by clock: since when an answer is pending
	asking  bool
	stopped bool
}

func (p *pulse) start() {
	now := p.clock.read()
	p.heard.Store(int64(now))
	p.freed.Store(int64(now))
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.timer = time.AfterFunc(min(p.times.Ping, p.times.Idle), p.beat)
	}
}

func (p *pulse) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

// hear records an arrival.
func (p *pulse) hear() { p.heard.Store(int64(p.clock.read())) }

func (p *pulse) begin() { p.calls.Add(1) }

func (p *pulse) end() {
	p.freed.Store(int64(p.clock.read()))
	p.calls.Add(-1)
}

// beat checks the connection, and sets the timer for the next time.
func (p *pulse) beat() {
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return
	}
	now := p.clock.read()
	next, do := p.look(now)
	p.timer.Reset(max(next, time.Millisecond))
	p.mu.Unlock()
	if do != nil {
		do()
	}
}

// look returns when to look again, and what to do now; the caller holds mu.
func (p *pulse) look(now time.Duration) (next time.Duration, do func()) {
	patience := p.times.Ping + p.times.Timeout
	if since := time.Duration(p.since.Load()); since != 0 && now-since >= patience {
		return patience, func() { p.dead(fmt.Errorf("%w: it has taken nothing for %v", errSilent, now-since)) }
	}
	if heard := time.Duration(p.heard.Load()); !p.asking || heard >= p.asked {
		p.asking = false
		if next = p.times.Ping - (now - heard); next <= 0 {
			p.asking, p.asked, next = true, now, p.times.Timeout
			do = p.ping
		}
	} else if next = p.times.Timeout - (now - p.asked); next <= 0 {
		return patience, func() { p.dead(fmt.Errorf("%w: it has said nothing for %v", errSilent, now-heard)) }
	}
	if free := now - time.Duration(p.freed.Load()); p.calls.Load() == 0 && p.times.Idle > 0 {
		if free >= p.times.Idle {
			return p.times.Idle, p.idle
		}
		next = min(next, p.times.Idle-free)
	}
	return next, do
}

// stopwatch is the clock of one connection. It is read for each frame, and decides only about pings and dead
// connections. So it is Go's monotonic clock, which needs no system call, unlike the clock of leases (package
// bootclock). It may stop during suspend, which delays detection by at most Times.Ping.
type stopwatch struct{ began time.Time }

func startStopwatch() stopwatch { return stopwatch{began: time.Now()} }

// read returns the connection's age.
func (s stopwatch) read() time.Duration { return time.Since(s.began) }
