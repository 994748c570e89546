package client

import "sync/atomic"

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

// counters are the growing counts of Stats, without the cache's.
type counters struct {
	keepAlives, keepAlivesFailed, jeopardies, rescues, failOvers, attempts, eventsDelivered, eventsDropped atomic.Uint64

	lastingChanges atomic.Uint64 // lasting changes that have, or may have, taken effect; not in Stats
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
