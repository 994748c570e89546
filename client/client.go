package client

import (
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Client is a session with a cell. Its methods may be called from several goroutines. Close it, also after
// the session is gone.
type Client struct {
	cell     *Cell
	ownsCell bool   // New made the Cell for this session: Close closes it
	cfg      Config // of this session; other sessions of the Cell may differ
	session  *sessionState
	numbers  *requestNumbers
	janitor  *janitor
	notifier *notifier
	handles  *handleTable
	cache    *cache
	auditor  *auditor
	keeper   *keeper

	running      sync.WaitGroup // see "Goroutines" in doc.go
	stopNotifier chan struct{}  // closed by Close: ends the notifier
	closeOnce    sync.Once
	closeError   error // of the first Close; set before closeOnce is done
}

// Cell returns the session's cell, to inspect it and to open other sessions over the same connections. If New
// made the client, its Close closes the Cell too.
func (c *Client) Cell() *Cell { return c.cell }

// Session returns the number of the session.
func (c *Client) Session() api.SessionID { return c.session.id }

// Epoch returns the epoch of the newest master that the session knows of.
func (c *Client) Epoch() api.Epoch { return api.Epoch(c.session.wireCaller().GetEpoch()) }

// State checks the clock and returns the state of the session.
func (c *Client) State() session.State {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.session.refresh(c.session.clock())
}

// Left returns how long the lease still runs by the local clock. It is negative after the lease.
func (c *Client) Left() time.Duration {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.session.local.End().Sub(c.session.clock())
}

// Lease returns the length of the newest lease, which may exceed the requested one.
func (c *Client) Lease() time.Duration {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.session.local.Lease()
}

// Done is closed when the session is gone, or the client closed.
func (c *Client) Done() <-chan struct{} { return c.session.ended.Done() }

// Err says why the session is gone, nil while it is not: an *api.Error with the code SessionExpired that
// wraps a Cause (Closed, EndedByCell or GraceOver).
func (c *Client) Err() error {
	if why := c.session.errIfGone(); why != nil {
		return why
	}
	return nil
}

// Stats counts what has happened to a session, and to its calls, since it was opened, with its present state.
type Stats struct {
	KeepAlives       uint64     // sent
	KeepAlivesFailed uint64     // late or refused
	Jeopardies       uint64     // times that the lease ran out by the local clock
	Rescues          uint64     // returns to safety after that
	FailOvers        uint64     // masters after the first
	Attempts         uint64     // attempts of the session's calls, without KeepAlives
	EventsDelivered  uint64     // returned by Next or Events
	EventsDropped    uint64     // not queued, because too many waited: an EventLost replaces them
	EventsWaiting    int        // that Next would return now, for all handles
	Handles          int        // open, or being opened
	QueuePlaces      int        // requests for locks in queues at the cell, or about to be
	Cache            CacheStats // all zero with Config.NoCache
}

// Stats returns the current counts. Each is exact; together they are not of one moment.
func (c *Client) Stats() Stats {
	n := &c.session.counters
	s := Stats{
		KeepAlives: n.keepAlives.Load(), KeepAlivesFailed: n.keepAlivesFailed.Load(), Jeopardies: n.jeopardies.Load(),
		Rescues: n.rescues.Load(), FailOvers: n.failOvers.Load(), Attempts: n.attempts.Load(),
		EventsDelivered: n.eventsDelivered.Load(), EventsDropped: n.eventsDropped.Load(),
		QueuePlaces: c.numbers.countWaiting(), Cache: c.cache.currentStats(),
	}
	s.Handles, s.EventsWaiting = c.handles.count()
	return s
}
