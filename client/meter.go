package client

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Meter hears of the work of sessions, calls, locks and connections of a Cell, for a program's metrics.
// Package clientprom has one for Prometheus. Client.Stats has the rest.
//
// Any function may be nil. Many goroutines call them, also for the library's own calls, and wait for them: so
// they must be quick, and may call only what reads in this package (Stats, State, Left, Err). No mutex of
// this package is held meanwhile. Config.Clock measures the times. A missing Meter costs nothing.
type Meter struct {
	// Opened is called when a session was opened, and Closed when Client.Close has closed it; until then the
	// session may be lost, but answers.
	Opened, Closed func(*Client)
	// Called is called when a call has ended, with success (api.OK) or not. op is the operation, in the few
	// dozen words of errors (api.Error.Op). took is the time of all attempts of a call that no cache has
	// answered, with the pauses; for "acquire" it includes the wait for the lock. KeepAlives do not count.
	Called func(op string, code api.Code, took time.Duration)
	// Acquired is called when Acquire returns a lock, after a wait, also for a kept one
	// (OpenOptions.CacheLock).
	Acquired func(mode api.LockMode, waited time.Duration)
	// Released is called when the owner has released a lock, by Release, or by Close of the handle or the
	// client, also after a loss. held is the time since the lock was returned.
	Released func(mode api.LockMode, held time.Duration)
	// Connected is called for each connection to a replica. again: it replaces an ended one.
	Connected func(again bool)
}

func (m *Meter) opened(c *Client) {
	if m != nil && m.Opened != nil {
		m.Opened(c)
	}
}

func (m *Meter) closed(c *Client) {
	if m != nil && m.Closed != nil {
		m.Closed(c)
	}
}

func (m *Meter) connected(again bool) {
	if m != nil && m.Connected != nil {
		m.Connected(again)
	}
}

// start reads the clock for a measurement; 0 without one.
func (m *Meter) start(clock session.Clock) session.Instant {
	if m == nil {
		return 0
	}
	return clock()
}

func (m *Meter) called(op string, clock session.Clock, began session.Instant, err error) {
	if m != nil && m.Called != nil {
		m.Called(op, api.CodeOf(err), clock().Sub(began))
	}
}

func (m *Meter) acquired(mode api.LockMode, clock session.Clock, began session.Instant) {
	if m != nil && m.Acquired != nil {
		m.Acquired(mode, clock().Sub(began))
	}
}

// released is for a lock that its owner has had since then; since is 0 if it never had it.
func (m *Meter) released(mode api.LockMode, clock session.Clock, since session.Instant) {
	if m != nil && m.Released != nil && since != 0 {
		m.Released(mode, clock().Sub(since))
	}
}
