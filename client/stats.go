package client

import "sync/atomic"

// Stats counts what has happened to a session, and to its calls, since it was opened; and says what it has now.
type Stats struct {
	KeepAlives       uint64     // sent
	KeepAlivesFailed uint64     // not answered in time, or refused
	Jeopardies       uint64     // times that the lease ran out by the local clock
	Rescues          uint64     // times that the session became safe again after that
	FailOvers        uint64     // masters after the first
	Attempts         uint64     // times that a call of the session was sent to a replica, without KeepAlives
	EventsDelivered  uint64     // events that Next or Events has returned
	EventsDropped    uint64     // events that were not queued, because too many waited: an EventLost is in their place
	EventsWaiting    int        // events that Next would return now, of all handles
	Handles          int        // handles that are open, or being opened
	QueuePlaces      int        // requests for locks that are in queues at the cell, or about to be
	Cache            CacheStats // all zero with Config.NoCache
}

// counters are the counts of Stats that only grow, without the cache's.
type counters struct {
	keepAlives, keepAlivesFailed, jeopardies, rescues, failOvers, attempts, eventsDelivered, eventsDropped atomic.Uint64

	lastingChanges atomic.Uint64 // changes that have taken effect, or may have, and that outlive the session; not in Stats
}

// Stats returns the current counts. Each is exact; together they are not of one
// moment.
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
