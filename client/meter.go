package client

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Meter is told what sessions, calls, locks and connections of a Cell have done, so that a
// program can have metrics of its sessions. Package clientprom has one for Prometheus. What is
// not told here can be read when it is needed: see Client.Stats.
//
// Any function may be nil. They are called from many goroutines, also of calls that the
// library makes by itself, and the call waits for them: so they must be quick, and may call
// nothing of this package but what reads (Stats, State, Left, Err). No mutex of this package
// is held meanwhile. Times are measured by Config.Clock. A Meter that is missing costs nothing.
type Meter struct {
	// Opened is called when a session was opened, and Closed when Client.Close has closed it; until then the
	// session may be lost, but can be asked.
	Opened, Closed func(*Client)
	// Called is called when a call has ended, whether its answer was success (api.OK) or not. op is what was
	// tried, in the words of errors (api.Error.Op), of which there are few dozen. took is the time of all attempts,
	// with the pauses between them, of a call that a cache has not answered; of "acquire" it is the wait for the lock, too.
	// KeepAlives are not among the calls.
	Called func(op string, code api.Code, took time.Duration)
	// Acquired is called when Acquire returns a lock, after a wait, also for one that was kept (OpenOptions.CacheLock).
	Acquired func(mode api.LockMode, waited time.Duration)
	// Released is called when the owner of a lock has released it, by Release, or by Close of the handle or the client,
	// also if the lock had been lost before. held is the time since the lock was returned.
	Released func(mode api.LockMode, held time.Duration)
	// Connected is called when there is a connection to a replica. again says that it takes the place of one that
	// has ended.
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

// start reads the clock for what is measured; 0 if nothing is.
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
